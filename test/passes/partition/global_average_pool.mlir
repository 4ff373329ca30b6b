// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// An average over the split dimension.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<2x4x4x8xf32>
// CHECK-SAME: -> {{.*}}tensor<2x4x1x1xf32>
// CHECK-NEXT: [[GLOBAL_AVERAGE_POOL:%\w+]] = "onnx.GlobalAveragePool"([[X]]) : (tensor<2x4x4x8xf32>) -> tensor<2x4x1x1xf32>
// CHECK-NEXT: [[CONSTANT:%\w+]] = "onnx.Constant"() {value = dense<5.000000e-01> : tensor<f32>} : () -> tensor<f32>
// CHECK-NEXT: [[MUL:%\w+]] = "onnx.Mul"([[GLOBAL_AVERAGE_POOL]], [[CONSTANT]]) : (tensor<2x4x1x1xf32>, tensor<f32>) -> tensor<2x4x1x1xf32>
// CHECK-NEXT: return [[MUL]] : tensor<2x4x1x1xf32>
#split2 = #topt.layout<@mesh, ["S(2)"]>
#sums = #topt.layout<@mesh, ["P(sum)"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<2x4x8x8xf32> {topt.name = "x", topt.layout = #split2}) -> (tensor<2x4x1x1xf32> {topt.name = "y", topt.layout = #sums}) {
    %0 = "onnx.GlobalAveragePool"(%x) {topt.strategy = #topt.strategy<[#split2], [#sums]>} : (tensor<2x4x8x8xf32>) -> tensor<2x4x1x1xf32>
    return %0 : tensor<2x4x1x1xf32>
  }
}
