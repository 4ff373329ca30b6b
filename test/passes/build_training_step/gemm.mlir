// RUN: tensoropt-opt %s -p 'build-training-step{loss=output:l optimizer=sgd}' | filecheck %s

// Alpha and a transposed operand.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<4x8xf32>
// CHECK-SAME: {{%\w+}}: tensor<6x8xf32>
// CHECK-SAME: {{%\w+}}: tensor<f32>
// CHECK: [[EXPAND:%\w+]] = "onnx.Expand"({{%\w+}}, {{%\w+}}) {{.*}}topt.phase = "backward"} : (tensor<1x1xf32>, tensor<2xi64>) -> tensor<4x6xf32>
// CHECK-NEXT: [[CONSTANT_4:%\w+]] = "onnx.Constant"() {{.*}}topt.phase = "backward", value = dense<2.000000e+00> : tensor<f32>} : () -> tensor<f32>
// CHECK-NEXT: [[MUL:%\w+]] = "onnx.Mul"([[EXPAND]], [[CONSTANT_4]]) {{.*}}topt.phase = "backward"} : (tensor<4x6xf32>, tensor<f32>) -> tensor<4x6xf32>
// CHECK-NEXT: [[GEMM_2:%\w+]] = "onnx.Gemm"([[MUL]], [[X]]) {{.*}}topt.phase = "backward", transA = 1 : i64, transB = 0 : i64} : (tensor<4x6xf32>, tensor<4x8xf32>) -> tensor<6x8xf32>
// CHECK-NEXT: {{%\w+}} = "onnx.Identity"([[GEMM_2]]) {topt.gradient_of = "w"{{.*}}topt.phase = "backward"} : (tensor<6x8xf32>) -> tensor<6x8xf32>
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x"}, %w: tensor<6x8xf32> {topt.name = "w", topt.param}) -> (tensor<f32> {topt.name = "l"}) {
    %0 = "onnx.Gemm"(%x, %w) {alpha = 2.0 : f32, transB = 1 : i64} : (tensor<4x8xf32>, tensor<6x8xf32>) -> tensor<4x6xf32>
    %l = "onnx.ReduceSum"(%0) {keepdims = 0 : i64} : (tensor<4x6xf32>) -> tensor<f32>
    return %l : tensor<f32>
  }
}
