// RUN: tensoropt-opt %s -p 'build-training-step{loss=output:l optimizer=sgd}' | filecheck %s

// By the result.

// CHECK: func.func @main
// CHECK-SAME: [[W:%\w+]]: tensor<4x8xf32>
// CHECK-SAME: {{%\w+}}: tensor<f32>
// CHECK: [[TANH:%\w+]] = "onnx.Tanh"([[W]]) {{.*}}topt.phase = "forward"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK: [[EXPAND:%\w+]] = "onnx.Expand"({{%\w+}}, {{%\w+}}) {{.*}}topt.phase = "backward"} : (tensor<1x1xf32>, tensor<2xi64>) -> tensor<4x8xf32>
// CHECK-NEXT: [[MUL:%\w+]] = "onnx.Mul"([[TANH]], [[TANH]]) {{.*}}topt.phase = "backward"} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK-NEXT: [[CONSTANT_4:%\w+]] = "onnx.Constant"() {{.*}}topt.phase = "backward", value = dense<1.000000e+00> : tensor<f32>} : () -> tensor<f32>
// CHECK-NEXT: [[SUB:%\w+]] = "onnx.Sub"([[CONSTANT_4]], [[MUL]]) {{.*}}topt.phase = "backward"} : (tensor<f32>, tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK-NEXT: [[MUL_2:%\w+]] = "onnx.Mul"([[EXPAND]], [[SUB]]) {{.*}}topt.phase = "backward"} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK-NEXT: {{%\w+}} = "onnx.Identity"([[MUL_2]]) {topt.gradient_of = "w"{{.*}}topt.phase = "backward"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%w: tensor<4x8xf32> {topt.name = "w", topt.param}) -> (tensor<f32> {topt.name = "l"}) {
    %0 = "onnx.Tanh"(%w) : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %l = "onnx.ReduceSum"(%0) {keepdims = 0 : i64} : (tensor<4x8xf32>) -> tensor<f32>
    return %l : tensor<f32>
  }
}
