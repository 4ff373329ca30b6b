// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// An index along the split dimension counts from where the rank's part begins.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<4x4xf32>
// CHECK-SAME: -> {{.*}}tensor<4xi64>
// CHECK-NEXT: [[CONSTANT:%\w+]] = "onnx.Constant"() {value = dense<1> : tensor<1xi64>} : () -> tensor<1xi64>
// CHECK-NEXT: [[REDUCE_MAX:%\w+]] = "onnx.ReduceMax"([[X]], [[CONSTANT]]) {keepdims = 1 : i64} : (tensor<4x4xf32>, tensor<1xi64>) -> tensor<4x1xf32>
// CHECK-NEXT: [[ALL_REDUCE:%\w+]] = shard.all_reduce [[REDUCE_MAX]] on @mesh grid_axes = [0] reduction = max : tensor<4x1xf32> -> tensor<4x1xf32>
// CHECK-NEXT: [[EQUAL:%\w+]] = "onnx.Equal"([[REDUCE_MAX]], [[ALL_REDUCE]]) : (tensor<4x1xf32>, tensor<4x1xf32>) -> tensor<4x1xi1>
// CHECK-NEXT: [[ARG_MAX:%\w+]] = "onnx.ArgMax"([[X]]) {axis = 1 : i64, keepdims = 1 : i64, select_last_index = 0 : i64} : (tensor<4x4xf32>) -> tensor<4x1xi64>
// CHECK-NEXT: [[AXIS_CONSTANT:%\w+]] = "topt.axis_constant"() {axes = array<i64: 0>, values = dense<[0, 4]> : tensor<2xi64>} : () -> tensor<i64>
// CHECK-NEXT: [[ADD:%\w+]] = "onnx.Add"([[ARG_MAX]], [[AXIS_CONSTANT]]) : (tensor<4x1xi64>, tensor<i64>) -> tensor<4x1xi64>
// CHECK-NEXT: [[CONSTANT_2:%\w+]] = "onnx.Constant"() {value = dense<7> : tensor<i64>} : () -> tensor<i64>
// CHECK-NEXT: [[WHERE:%\w+]] = "onnx.Where"([[EQUAL]], [[ADD]], [[CONSTANT_2]]) : (tensor<4x1xi1>, tensor<4x1xi64>, tensor<i64>) -> tensor<4x1xi64>
// CHECK-NEXT: [[ALL_REDUCE_2:%\w+]] = shard.all_reduce [[WHERE]] on @mesh grid_axes = [0] reduction = min : tensor<4x1xi64> -> tensor<4x1xi64>
// CHECK-NEXT: [[CONSTANT_3:%\w+]] = "onnx.Constant"() {value = dense<1> : tensor<1xi64>} : () -> tensor<1xi64>
// CHECK-NEXT: [[SQUEEZE:%\w+]] = "onnx.Squeeze"([[ALL_REDUCE_2]], [[CONSTANT_3]]) : (tensor<4x1xi64>, tensor<1xi64>) -> tensor<4xi64>
// CHECK-NEXT: return [[SQUEEZE]] : tensor<4xi64>
#columns = #topt.layout<@mesh, ["S(1)"]>
#whole = #topt.layout<@mesh, ["R"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x", topt.layout = #columns}) -> (tensor<4xi64> {topt.name = "y", topt.layout = #whole}) {
    %0 = "onnx.ArgMax"(%x) {axis = 1 : i64, keepdims = 0 : i64, topt.strategy = #topt.strategy<[#columns], [#whole]>} : (tensor<4x8xf32>) -> tensor<4xi64>
    return %0 : tensor<4xi64>
  }
}
