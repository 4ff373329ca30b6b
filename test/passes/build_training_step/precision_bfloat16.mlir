// RUN: tensoropt-opt %s -p 'build-training-step{loss=output:l optimizer=sgd precision=bfloat16}' | filecheck %s

// Products read narrow numbers.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<4x8xf32>
// CHECK-SAME: [[W:%\w+]]: tensor<8x6xf32>
// CHECK-SAME: {{%\w+}}: tensor<f32>
// CHECK: [[CAST:%\w+]] = "onnx.Cast"([[X]]) {to = 16 : i64{{.*}}topt.phase = "forward"} : (tensor<4x8xf32>) -> tensor<4x8xbf16>
// CHECK-NEXT: [[CAST_2:%\w+]] = "onnx.Cast"([[W]]) {to = 16 : i64{{.*}}topt.phase = "forward"} : (tensor<8x6xf32>) -> tensor<8x6xbf16>
// CHECK-NEXT: [[MAT_MUL:%\w+]] = "onnx.MatMul"([[CAST]], [[CAST_2]]) {{.*}}topt.phase = "forward"} : (tensor<4x8xbf16>, tensor<8x6xbf16>) -> tensor<4x6xbf16>
// CHECK-NEXT: [[CAST_3:%\w+]] = "onnx.Cast"([[MAT_MUL]]) {to = 1 : i64{{.*}}topt.phase = "forward"} : (tensor<4x6xbf16>) -> tensor<4x6xf32>
// CHECK-NEXT: [[REDUCE_SUM:%\w+]] = "onnx.ReduceSum"([[CAST_3]]) {keepdims = 0 : i64{{.*}}topt.phase = "forward"} : (tensor<4x6xf32>) -> tensor<f32>
// CHECK-NEXT: {{%\w+}} = "onnx.Identity"([[REDUCE_SUM]]) {{.*}}topt.phase = "forward"} : (tensor<f32>) -> tensor<f32>
// CHECK-NEXT: [[CONSTANT:%\w+]] = "onnx.Constant"() {{.*}}topt.phase = "backward", value = dense<1.000000e+00> : tensor<f32>} : () -> tensor<f32>
// CHECK-NEXT: [[IDENTITY_2:%\w+]] = "onnx.Identity"([[CONSTANT]]) {{.*}}topt.phase = "backward"} : (tensor<f32>) -> tensor<f32>
// CHECK-NEXT: [[CONSTANT_2:%\w+]] = "onnx.Constant"() {{.*}}topt.phase = "backward", value = dense<[0, 1]> : tensor<2xi64>} : () -> tensor<2xi64>
// CHECK-NEXT: [[UNSQUEEZE:%\w+]] = "onnx.Unsqueeze"([[IDENTITY_2]], [[CONSTANT_2]]) {{.*}}topt.phase = "backward"} : (tensor<f32>, tensor<2xi64>) -> tensor<1x1xf32>
// CHECK-NEXT: [[CONSTANT_3:%\w+]] = "onnx.Constant"() {{.*}}topt.phase = "backward", value = dense<[4, 6]> : tensor<2xi64>} : () -> tensor<2xi64>
// CHECK-NEXT: [[EXPAND:%\w+]] = "onnx.Expand"([[UNSQUEEZE]], [[CONSTANT_3]]) {{.*}}topt.phase = "backward"} : (tensor<1x1xf32>, tensor<2xi64>) -> tensor<4x6xf32>
// CHECK-NEXT: [[CAST_4:%\w+]] = "onnx.Cast"([[EXPAND]]) {to = 16 : i64{{.*}}topt.phase = "backward"} : (tensor<4x6xf32>) -> tensor<4x6xbf16>
// CHECK-NEXT: [[GEMM:%\w+]] = "onnx.Gemm"([[CAST]], [[CAST_4]]) {{.*}}topt.phase = "backward", transA = 1 : i64, transB = 0 : i64} : (tensor<4x8xbf16>, tensor<4x6xbf16>) -> tensor<8x6xbf16>
// CHECK-NEXT: [[CAST_5:%\w+]] = "onnx.Cast"([[GEMM]]) {to = 1 : i64{{.*}}topt.phase = "backward"} : (tensor<8x6xbf16>) -> tensor<8x6xf32>
// CHECK-NEXT: {{%\w+}} = "onnx.Identity"([[CAST_5]]) {topt.gradient_of = "w"{{.*}}topt.phase = "backward"} : (tensor<8x6xf32>) -> tensor<8x6xf32>
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x"}, %w: tensor<8x6xf32> {topt.name = "w", topt.param}) -> (tensor<f32> {topt.name = "l"}) {
    %0 = "onnx.MatMul"(%x, %w) : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
    %l = "onnx.ReduceSum"(%0) {keepdims = 0 : i64} : (tensor<4x6xf32>) -> tensor<f32>
    return %l : tensor<f32>
  }
}
