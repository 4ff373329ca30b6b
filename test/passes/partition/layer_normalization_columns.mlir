// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// Normalisation over the split dimension: the ranks share mean and variance.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<4x4xf32>
// CHECK-SAME: [[G:%\w+]]: tensor<4xf32>
// CHECK-SAME: -> {{.*}}tensor<4x4xf32>
// CHECK-NEXT: [[CONSTANT:%\w+]] = "onnx.Constant"() {value = dense<1> : tensor<1xi64>} : () -> tensor<1xi64>
// CHECK-NEXT: [[REDUCE_SUM:%\w+]] = "onnx.ReduceSum"([[X]], [[CONSTANT]]) {keepdims = 1 : i64} : (tensor<4x4xf32>, tensor<1xi64>) -> tensor<4x1xf32>
// CHECK-NEXT: [[ALL_REDUCE:%\w+]] = shard.all_reduce [[REDUCE_SUM]] on @mesh grid_axes = [0] : tensor<4x1xf32> -> tensor<4x1xf32>
// CHECK-NEXT: [[CONSTANT_2:%\w+]] = "onnx.Constant"() {value = dense<1.250000e-01> : tensor<f32>} : () -> tensor<f32>
// CHECK-NEXT: [[MUL:%\w+]] = "onnx.Mul"([[ALL_REDUCE]], [[CONSTANT_2]]) : (tensor<4x1xf32>, tensor<f32>) -> tensor<4x1xf32>
// CHECK-NEXT: [[SUB:%\w+]] = "onnx.Sub"([[X]], [[MUL]]) : (tensor<4x4xf32>, tensor<4x1xf32>) -> tensor<4x4xf32>
// CHECK-NEXT: [[MUL_2:%\w+]] = "onnx.Mul"([[SUB]], [[SUB]]) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
// CHECK-NEXT: [[CONSTANT_3:%\w+]] = "onnx.Constant"() {value = dense<1> : tensor<1xi64>} : () -> tensor<1xi64>
// CHECK-NEXT: [[REDUCE_SUM_2:%\w+]] = "onnx.ReduceSum"([[MUL_2]], [[CONSTANT_3]]) {keepdims = 1 : i64} : (tensor<4x4xf32>, tensor<1xi64>) -> tensor<4x1xf32>
// CHECK-NEXT: [[ALL_REDUCE_2:%\w+]] = shard.all_reduce [[REDUCE_SUM_2]] on @mesh grid_axes = [0] : tensor<4x1xf32> -> tensor<4x1xf32>
// CHECK-NEXT: [[CONSTANT_4:%\w+]] = "onnx.Constant"() {value = dense<1.250000e-01> : tensor<f32>} : () -> tensor<f32>
// CHECK-NEXT: [[MUL_3:%\w+]] = "onnx.Mul"([[ALL_REDUCE_2]], [[CONSTANT_4]]) : (tensor<4x1xf32>, tensor<f32>) -> tensor<4x1xf32>
// CHECK-NEXT: [[CONSTANT_5:%\w+]] = "onnx.Constant"() {value = dense<9.99999974E-6> : tensor<f32>} : () -> tensor<f32>
// CHECK-NEXT: [[ADD:%\w+]] = "onnx.Add"([[MUL_3]], [[CONSTANT_5]]) : (tensor<4x1xf32>, tensor<f32>) -> tensor<4x1xf32>
// CHECK-NEXT: [[SQRT:%\w+]] = "onnx.Sqrt"([[ADD]]) : (tensor<4x1xf32>) -> tensor<4x1xf32>
// CHECK-NEXT: [[RECIPROCAL:%\w+]] = "onnx.Reciprocal"([[SQRT]]) : (tensor<4x1xf32>) -> tensor<4x1xf32>
// CHECK-NEXT: [[MUL_4:%\w+]] = "onnx.Mul"([[SUB]], [[RECIPROCAL]]) : (tensor<4x4xf32>, tensor<4x1xf32>) -> tensor<4x4xf32>
// CHECK-NEXT: [[MUL_5:%\w+]] = "onnx.Mul"([[MUL_4]], [[G]]) : (tensor<4x4xf32>, tensor<4xf32>) -> tensor<4x4xf32>
// CHECK-NEXT: return [[MUL_5]] : tensor<4x4xf32>
#columns = #topt.layout<@mesh, ["S(1)"]>
#rows = #topt.layout<@mesh, ["S(0)"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x", topt.layout = #columns}, %g: tensor<8xf32> {topt.name = "g", topt.param, topt.layout = #rows}) -> (tensor<4x8xf32> {topt.name = "y", topt.layout = #columns}) {
    %0 = "onnx.LayerNormalization"(%x, %g) {axis = -1 : i64, topt.strategy = #topt.strategy<[#columns, #rows], [#columns]>} : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
    return %0 : tensor<4x8xf32>
  }
}
