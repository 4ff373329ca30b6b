// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// A sum over another dimension is not.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<2x8xf32>
// CHECK-SAME: -> {{.*}}tensor<2xf32>
// CHECK-NEXT: [[CONSTANT:%\w+]] = "onnx.Constant"() {value = dense<1> : tensor<1xi64>} : () -> tensor<1xi64>
// CHECK-NEXT: [[REDUCE_SUM:%\w+]] = "onnx.ReduceSum"([[X]], [[CONSTANT]]) {keepdims = 0 : i64} : (tensor<2x8xf32>, tensor<1xi64>) -> tensor<2xf32>
// CHECK-NEXT: return [[REDUCE_SUM]] : tensor<2xf32>
#rows = #topt.layout<@mesh, ["S(0)"]>
#whole = #topt.layout<@mesh, ["R"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x", topt.layout = #rows}) -> (tensor<4xf32> {topt.name = "y", topt.layout = #rows}) {
    %axes = "onnx.Constant"() {topt.strategy = #topt.strategy<[], [#whole]>, value = dense<1> : tensor<1xi64>} : () -> tensor<1xi64>
    %0 = "onnx.ReduceSum"(%x, %axes) {keepdims = 0 : i64, topt.strategy = #topt.strategy<[#rows, #whole], [#rows]>} : (tensor<4x8xf32>, tensor<1xi64>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
