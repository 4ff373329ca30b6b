// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// A maximum over the split dimension is partial.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<4x4xf32>
// CHECK-SAME: -> {{.*}}tensor<4xf32>
// CHECK-NEXT: [[CONSTANT:%\w+]] = "onnx.Constant"() {value = dense<1> : tensor<1xi64>} : () -> tensor<1xi64>
// CHECK-NEXT: [[REDUCE_MAX:%\w+]] = "onnx.ReduceMax"([[X]], [[CONSTANT]]) {keepdims = 0 : i64} : (tensor<4x4xf32>, tensor<1xi64>) -> tensor<4xf32>
// CHECK-NEXT: return [[REDUCE_MAX]] : tensor<4xf32>
#columns = #topt.layout<@mesh, ["S(1)"]>
#whole = #topt.layout<@mesh, ["R"]>
#maxima = #topt.layout<@mesh, ["P(max)"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x", topt.layout = #columns}) -> (tensor<4xf32> {topt.name = "y", topt.layout = #maxima}) {
    %axes = "onnx.Constant"() {topt.strategy = #topt.strategy<[], [#whole]>, value = dense<1> : tensor<1xi64>} : () -> tensor<1xi64>
    %0 = "onnx.ReduceMax"(%x, %axes) {keepdims = 0 : i64, topt.strategy = #topt.strategy<[#columns, #whole], [#maxima]>} : (tensor<4x8xf32>, tensor<1xi64>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
