// RUN: tensoropt-opt %s -p 'build-training-step{loss=output:l optimizer=sgd}' | filecheck %s

// Rows are added up where they were looked up.

// CHECK: func.func @main
// CHECK-SAME: {{%\w+}}: tensor<8x6xf32>
// CHECK-SAME: [[I:%\w+]]: tensor<4xi64>
// CHECK-SAME: {{%\w+}}: tensor<f32>
// CHECK: [[EXPAND:%\w+]] = "onnx.Expand"({{%\w+}}, {{%\w+}}) {{.*}}topt.phase = "backward"} : (tensor<1x1xf32>, tensor<2xi64>) -> tensor<4x6xf32>
// CHECK-NEXT: [[CONSTANT_4:%\w+]] = "onnx.Constant"() {{.*}}topt.phase = "backward", value = dense<1> : tensor<1xi64>} : () -> tensor<1xi64>
// CHECK-NEXT: [[UNSQUEEZE_2:%\w+]] = "onnx.Unsqueeze"([[I]], [[CONSTANT_4]]) {{.*}}topt.phase = "backward"} : (tensor<4xi64>, tensor<1xi64>) -> tensor<4x1xi64>
// CHECK-NEXT: [[CONSTANT_5:%\w+]] = "onnx.Constant"() {{.*}}topt.phase = "backward", value = dense<0> : tensor<i64>} : () -> tensor<i64>
// CHECK-NEXT: [[MUL:%\w+]] = "onnx.Mul"([[UNSQUEEZE_2]], [[CONSTANT_5]]) {{.*}}topt.phase = "backward"} : (tensor<4x1xi64>, tensor<i64>) -> tensor<4x1xi64>
// CHECK-NEXT: [[CAST:%\w+]] = "onnx.Cast"([[MUL]]) {to = 1 : i64{{.*}}topt.phase = "backward"} : (tensor<4x1xi64>) -> tensor<4x1xf32>
// CHECK-NEXT: [[CONSTANT_6:%\w+]] = "onnx.Constant"() {{.*}}topt.phase = "backward", value = dense<[0, 1]> : tensor<2xi64>} : () -> tensor<2xi64>
// CHECK-NEXT: [[REDUCE_SUM_2:%\w+]] = "onnx.ReduceSum"([[CAST]], [[CONSTANT_6]]) {keepdims = 0 : i64{{.*}}topt.phase = "backward"} : (tensor<4x1xf32>, tensor<2xi64>) -> tensor<f32>
// CHECK-NEXT: [[CONSTANT_7:%\w+]] = "onnx.Constant"() {{.*}}topt.phase = "backward", value = dense<[8, 6]> : tensor<2xi64>} : () -> tensor<2xi64>
// CHECK-NEXT: [[EXPAND_2:%\w+]] = "onnx.Expand"([[REDUCE_SUM_2]], [[CONSTANT_7]]) {{.*}}topt.phase = "backward"} : (tensor<f32>, tensor<2xi64>) -> tensor<8x6xf32>
// CHECK-NEXT: [[SCATTER_ND:%\w+]] = "onnx.ScatterND"([[EXPAND_2]], [[UNSQUEEZE_2]], [[EXPAND]]) {reduction = "add"{{.*}}topt.phase = "backward"} : (tensor<8x6xf32>, tensor<4x1xi64>, tensor<4x6xf32>) -> tensor<8x6xf32>
// CHECK-NEXT: {{%\w+}} = "onnx.Identity"([[SCATTER_ND]]) {topt.gradient_of = "w"{{.*}}topt.phase = "backward"} : (tensor<8x6xf32>) -> tensor<8x6xf32>
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%w: tensor<8x6xf32> {topt.name = "w", topt.param}, %i: tensor<4xi64> {topt.name = "i"}) -> (tensor<f32> {topt.name = "l"}) {
    %0 = "onnx.Gather"(%w, %i) {axis = 0 : i64} : (tensor<8x6xf32>, tensor<4xi64>) -> tensor<4x6xf32>
    %l = "onnx.ReduceSum"(%0) {keepdims = 0 : i64} : (tensor<4x6xf32>) -> tensor<f32>
    return %l : tensor<f32>
  }
}
