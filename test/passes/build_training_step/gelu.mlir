// RUN: tensoropt-opt %s -p 'build-training-step{loss=output:l optimizer=sgd}' | filecheck %s

// By the operand.

// CHECK: func.func @main
// CHECK-SAME: [[W:%\w+]]: tensor<4x8xf32>
// CHECK-SAME: {{%\w+}}: tensor<f32>
// CHECK: [[EXPAND:%\w+]] = "onnx.Expand"({{%\w+}}, {{%\w+}}) {{.*}}topt.phase = "backward"} : (tensor<1x1xf32>, tensor<2xi64>) -> tensor<4x8xf32>
// CHECK-NEXT: [[CONSTANT_4:%\w+]] = "onnx.Constant"() {{.*}}topt.phase = "backward", value = dense<0.707106769> : tensor<f32>} : () -> tensor<f32>
// CHECK-NEXT: [[MUL:%\w+]] = "onnx.Mul"([[W]], [[CONSTANT_4]]) {{.*}}topt.phase = "backward"} : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
// CHECK-NEXT: [[ERF:%\w+]] = "onnx.Erf"([[MUL]]) {{.*}}topt.phase = "backward"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK-NEXT: [[CONSTANT_5:%\w+]] = "onnx.Constant"() {{.*}}topt.phase = "backward", value = dense<5.000000e-01> : tensor<f32>} : () -> tensor<f32>
// CHECK-NEXT: [[MUL_2:%\w+]] = "onnx.Mul"([[ERF]], [[CONSTANT_5]]) {{.*}}topt.phase = "backward"} : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
// CHECK-NEXT: [[CONSTANT_6:%\w+]] = "onnx.Constant"() {{.*}}topt.phase = "backward", value = dense<5.000000e-01> : tensor<f32>} : () -> tensor<f32>
// CHECK-NEXT: [[ADD:%\w+]] = "onnx.Add"([[MUL_2]], [[CONSTANT_6]]) {{.*}}topt.phase = "backward"} : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
// CHECK-NEXT: [[MUL_3:%\w+]] = "onnx.Mul"([[MUL]], [[MUL]]) {{.*}}topt.phase = "backward"} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK-NEXT: [[NEG:%\w+]] = "onnx.Neg"([[MUL_3]]) {{.*}}topt.phase = "backward"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK-NEXT: [[EXP:%\w+]] = "onnx.Exp"([[NEG]]) {{.*}}topt.phase = "backward"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK-NEXT: [[CONSTANT_7:%\w+]] = "onnx.Constant"() {{.*}}topt.phase = "backward", value = dense<0.398942292> : tensor<f32>} : () -> tensor<f32>
// CHECK-NEXT: [[MUL_4:%\w+]] = "onnx.Mul"([[W]], [[CONSTANT_7]]) {{.*}}topt.phase = "backward"} : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
// CHECK-NEXT: [[MUL_5:%\w+]] = "onnx.Mul"([[MUL_4]], [[EXP]]) {{.*}}topt.phase = "backward"} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK-NEXT: [[ADD_2:%\w+]] = "onnx.Add"([[ADD]], [[MUL_5]]) {{.*}}topt.phase = "backward"} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK-NEXT: [[MUL_6:%\w+]] = "onnx.Mul"([[EXPAND]], [[ADD_2]]) {{.*}}topt.phase = "backward"} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK-NEXT: {{%\w+}} = "onnx.Identity"([[MUL_6]]) {topt.gradient_of = "w"{{.*}}topt.phase = "backward"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%w: tensor<4x8xf32> {topt.name = "w", topt.param}) -> (tensor<f32> {topt.name = "l"}) {
    %0 = "onnx.Gelu"(%w) : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %l = "onnx.ReduceSum"(%0) {keepdims = 0 : i64} : (tensor<4x8xf32>) -> tensor<f32>
    return %l : tensor<f32>
  }
}
