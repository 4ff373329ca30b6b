// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// A sum over the split dimension is partial.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<4x4xf32>
// CHECK-SAME: -> {{.*}}tensor<4xf32>
// CHECK-NEXT: [[CONSTANT:%\w+]] = "onnx.Constant"() {value = dense<1> : tensor<1xi64>} : () -> tensor<1xi64>
// CHECK-NEXT: [[REDUCE_SUM:%\w+]] = "onnx.ReduceSum"([[X]], [[CONSTANT]]) {keepdims = 0 : i64} : (tensor<4x4xf32>, tensor<1xi64>) -> tensor<4xf32>
// CHECK-NEXT: return [[REDUCE_SUM]] : tensor<4xf32>
#columns = #topt.layout<@mesh, ["S(1)"]>
#whole = #topt.layout<@mesh, ["R"]>
#sums = #topt.layout<@mesh, ["P(sum)"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x", topt.layout = #columns}) -> (tensor<4xf32> {topt.name = "y", topt.layout = #sums}) {
    %axes = "onnx.Constant"() {topt.strategy = #topt.strategy<[], [#whole]>, value = dense<1> : tensor<1xi64>} : () -> tensor<1xi64>
    %0 = "onnx.ReduceSum"(%x, %axes) {keepdims = 0 : i64, topt.strategy = #topt.strategy<[#columns, #whole], [#sums]>} : (tensor<4x8xf32>, tensor<1xi64>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
