// RUN: tensoropt-opt %s -p 'build-training-step{loss=output:l optimizer=sgd}' | filecheck %s

// Spread evenly.

// CHECK: func.func @main
// CHECK-SAME: {{%\w+}}: tensor<4x8xf32>
// CHECK-SAME: {{%\w+}}: tensor<f32>
// CHECK: [[IDENTITY_2:%\w+]] = "onnx.Identity"({{%\w+}}) {{.*}}topt.phase = "backward"} : (tensor<f32>) -> tensor<f32>
// CHECK: [[EXPAND:%\w+]] = "onnx.Expand"([[IDENTITY_2]], {{%\w+}}) {{.*}}topt.phase = "backward"} : (tensor<f32>, tensor<0xi64>) -> tensor<f32>
// CHECK-NEXT: [[CONSTANT_3:%\w+]] = "onnx.Constant"() {{.*}}topt.phase = "backward", value = dense<[0, 1]> : tensor<2xi64>} : () -> tensor<2xi64>
// CHECK-NEXT: [[UNSQUEEZE:%\w+]] = "onnx.Unsqueeze"([[EXPAND]], [[CONSTANT_3]]) {{.*}}topt.phase = "backward"} : (tensor<f32>, tensor<2xi64>) -> tensor<1x1xf32>
// CHECK-NEXT: [[CONSTANT_4:%\w+]] = "onnx.Constant"() {{.*}}topt.phase = "backward", value = dense<3.125000e-02> : tensor<f32>} : () -> tensor<f32>
// CHECK-NEXT: [[MUL:%\w+]] = "onnx.Mul"([[UNSQUEEZE]], [[CONSTANT_4]]) {{.*}}topt.phase = "backward"} : (tensor<1x1xf32>, tensor<f32>) -> tensor<1x1xf32>
// CHECK-NEXT: [[CONSTANT_5:%\w+]] = "onnx.Constant"() {{.*}}topt.phase = "backward", value = dense<[4, 8]> : tensor<2xi64>} : () -> tensor<2xi64>
// CHECK-NEXT: [[EXPAND_2:%\w+]] = "onnx.Expand"([[MUL]], [[CONSTANT_5]]) {{.*}}topt.phase = "backward"} : (tensor<1x1xf32>, tensor<2xi64>) -> tensor<4x8xf32>
// CHECK-NEXT: {{%\w+}} = "onnx.Identity"([[EXPAND_2]]) {topt.gradient_of = "w"{{.*}}topt.phase = "backward"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%w: tensor<4x8xf32> {topt.name = "w", topt.param}) -> (tensor<f32> {topt.name = "l"}) {
    %0 = "onnx.ReduceMean"(%w) {keepdims = 0 : i64} : (tensor<4x8xf32>) -> tensor<f32>
    %l = "onnx.ReduceSum"(%0) {keepdims = 0 : i64} : (tensor<f32>) -> tensor<f32>
    return %l : tensor<f32>
  }
}
