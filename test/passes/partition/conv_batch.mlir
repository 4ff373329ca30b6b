// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// Images.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<1x4x8x8xf32>
// CHECK-SAME: [[W:%\w+]]: tensor<6x4x3x3xf32>
// CHECK-SAME: -> {{.*}}tensor<1x6x8x8xf32>
// CHECK-NEXT: [[CONV:%\w+]] = "onnx.Conv"([[X]], [[W]]) {kernel_shape = array<i64: 3, 3>, pads = array<i64: 1, 1, 1, 1>} : (tensor<1x4x8x8xf32>, tensor<6x4x3x3xf32>) -> tensor<1x6x8x8xf32>
// CHECK-NEXT: return [[CONV]] : tensor<1x6x8x8xf32>
#rows = #topt.layout<@mesh, ["S(0)"]>
#whole = #topt.layout<@mesh, ["R"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<2x4x8x8xf32> {topt.name = "x", topt.layout = #rows}, %w: tensor<6x4x3x3xf32> {topt.name = "w", topt.param, topt.layout = #whole}) -> (tensor<2x6x8x8xf32> {topt.name = "y", topt.layout = #rows}) {
    %0 = "onnx.Conv"(%x, %w) {kernel_shape = array<i64: 3, 3>, pads = array<i64: 1, 1, 1, 1>, topt.strategy = #topt.strategy<[#rows, #whole], [#rows]>} : (tensor<2x4x8x8xf32>, tensor<6x4x3x3xf32>) -> tensor<2x6x8x8xf32>
    return %0 : tensor<2x6x8x8xf32>
  }
}
