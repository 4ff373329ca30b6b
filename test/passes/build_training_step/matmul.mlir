// RUN: tensoropt-opt %s -p 'build-training-step{loss=output:l optimizer=sgd}' | filecheck %s

// The gradient of a weight is a product with its operand transposed.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<4x8xf32>
// CHECK-SAME: {{%\w+}}: tensor<8x6xf32>
// CHECK-SAME: {{%\w+}}: tensor<f32>
// CHECK: [[EXPAND:%\w+]] = "onnx.Expand"({{%\w+}}, {{%\w+}}) {{.*}}topt.phase = "backward"} : (tensor<1x1xf32>, tensor<2xi64>) -> tensor<4x6xf32>
// CHECK-NEXT: [[GEMM:%\w+]] = "onnx.Gemm"([[X]], [[EXPAND]]) {{.*}}topt.phase = "backward", transA = 1 : i64, transB = 0 : i64} : (tensor<4x8xf32>, tensor<4x6xf32>) -> tensor<8x6xf32>
// CHECK-NEXT: {{%\w+}} = "onnx.Identity"([[GEMM]]) {topt.gradient_of = "w"{{.*}}topt.phase = "backward"} : (tensor<8x6xf32>) -> tensor<8x6xf32>
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x"}, %w: tensor<8x6xf32> {topt.name = "w", topt.param}) -> (tensor<f32> {topt.name = "l"}) {
    %0 = "onnx.MatMul"(%x, %w) : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
    %l = "onnx.ReduceSum"(%0) {keepdims = 0 : i64} : (tensor<4x6xf32>) -> tensor<f32>
    return %l : tensor<f32>
  }
}
