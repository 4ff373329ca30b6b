// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// Input channels are summed over.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<2x2x8x8xf32>
// CHECK-SAME: [[W:%\w+]]: tensor<6x2x3x3xf32>
// CHECK-SAME: -> {{.*}}tensor<2x6x8x8xf32>
// CHECK-NEXT: [[CONV:%\w+]] = "onnx.Conv"([[X]], [[W]]) {kernel_shape = array<i64: 3, 3>, pads = array<i64: 1, 1, 1, 1>} : (tensor<2x2x8x8xf32>, tensor<6x2x3x3xf32>) -> tensor<2x6x8x8xf32>
// CHECK-NEXT: return [[CONV]] : tensor<2x6x8x8xf32>
#columns = #topt.layout<@mesh, ["S(1)"]>
#sums = #topt.layout<@mesh, ["P(sum)"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<2x4x8x8xf32> {topt.name = "x", topt.layout = #columns}, %w: tensor<6x4x3x3xf32> {topt.name = "w", topt.param, topt.layout = #columns}) -> (tensor<2x6x8x8xf32> {topt.name = "y", topt.layout = #sums}) {
    %0 = "onnx.Conv"(%x, %w) {kernel_shape = array<i64: 3, 3>, pads = array<i64: 1, 1, 1, 1>, topt.strategy = #topt.strategy<[#columns, #columns], [#sums]>} : (tensor<2x4x8x8xf32>, tensor<6x4x3x3xf32>) -> tensor<2x6x8x8xf32>
    return %0 : tensor<2x6x8x8xf32>
  }
}
