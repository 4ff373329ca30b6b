// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// Output channels.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<2x4x8x8xf32>
// CHECK-SAME: [[W:%\w+]]: tensor<3x4x3x3xf32>
// CHECK-SAME: -> {{.*}}tensor<2x3x8x8xf32>
// CHECK-NEXT: [[CONV:%\w+]] = "onnx.Conv"([[X]], [[W]]) {kernel_shape = array<i64: 3, 3>, pads = array<i64: 1, 1, 1, 1>} : (tensor<2x4x8x8xf32>, tensor<3x4x3x3xf32>) -> tensor<2x3x8x8xf32>
// CHECK-NEXT: return [[CONV]] : tensor<2x3x8x8xf32>
#whole = #topt.layout<@mesh, ["R"]>
#rows = #topt.layout<@mesh, ["S(0)"]>
#columns = #topt.layout<@mesh, ["S(1)"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<2x4x8x8xf32> {topt.name = "x", topt.layout = #whole}, %w: tensor<6x4x3x3xf32> {topt.name = "w", topt.param, topt.layout = #rows}) -> (tensor<2x6x8x8xf32> {topt.name = "y", topt.layout = #columns}) {
    %0 = "onnx.Conv"(%x, %w) {kernel_shape = array<i64: 3, 3>, pads = array<i64: 1, 1, 1, 1>, topt.strategy = #topt.strategy<[#whole, #rows], [#columns]>} : (tensor<2x4x8x8xf32>, tensor<6x4x3x3xf32>) -> tensor<2x6x8x8xf32>
    return %0 : tensor<2x6x8x8xf32>
  }
}
