// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// A softmax over the split dimension: the ranks share maximum and sum.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<4x4xf32>
// CHECK-SAME: -> {{.*}}tensor<4x4xf32>
// CHECK-NEXT: [[CONSTANT:%\w+]] = "onnx.Constant"() {value = dense<1> : tensor<1xi64>} : () -> tensor<1xi64>
// CHECK-NEXT: [[REDUCE_MAX:%\w+]] = "onnx.ReduceMax"([[X]], [[CONSTANT]]) {keepdims = 1 : i64} : (tensor<4x4xf32>, tensor<1xi64>) -> tensor<4x1xf32>
// CHECK-NEXT: [[ALL_REDUCE:%\w+]] = shard.all_reduce [[REDUCE_MAX]] on @mesh grid_axes = [0] reduction = max : tensor<4x1xf32> -> tensor<4x1xf32>
// CHECK-NEXT: [[SUB:%\w+]] = "onnx.Sub"([[X]], [[ALL_REDUCE]]) : (tensor<4x4xf32>, tensor<4x1xf32>) -> tensor<4x4xf32>
// CHECK-NEXT: [[EXP:%\w+]] = "onnx.Exp"([[SUB]]) : (tensor<4x4xf32>) -> tensor<4x4xf32>
// CHECK-NEXT: [[CONSTANT_2:%\w+]] = "onnx.Constant"() {value = dense<1> : tensor<1xi64>} : () -> tensor<1xi64>
// CHECK-NEXT: [[REDUCE_SUM:%\w+]] = "onnx.ReduceSum"([[EXP]], [[CONSTANT_2]]) {keepdims = 1 : i64} : (tensor<4x4xf32>, tensor<1xi64>) -> tensor<4x1xf32>
// CHECK-NEXT: [[ALL_REDUCE_2:%\w+]] = shard.all_reduce [[REDUCE_SUM]] on @mesh grid_axes = [0] : tensor<4x1xf32> -> tensor<4x1xf32>
// CHECK-NEXT: [[DIV:%\w+]] = "onnx.Div"([[EXP]], [[ALL_REDUCE_2]]) : (tensor<4x4xf32>, tensor<4x1xf32>) -> tensor<4x4xf32>
// CHECK-NEXT: return [[DIV]] : tensor<4x4xf32>
#columns = #topt.layout<@mesh, ["S(1)"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x", topt.layout = #columns}) -> (tensor<4x8xf32> {topt.name = "y", topt.layout = #columns}) {
    %0 = "onnx.Softmax"(%x) {axis = -1 : i64, topt.strategy = #topt.strategy<[#columns], [#columns]>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    return %0 : tensor<4x8xf32>
  }
}
