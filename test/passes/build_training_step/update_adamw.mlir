// RUN: tensoropt-opt %s -p 'build-training-step{loss=output:l optimizer=adamw weight-decay=0.1}' | filecheck %s

// The weight decays beside it.

// CHECK: func.func @main
// CHECK-SAME: {{%\w+}}: tensor<4x8xf32>
// CHECK-SAME: [[W:%\w+]]: tensor<8x6xf32>
// CHECK-SAME: [[ARG2:%\w+]]: tensor<f32>
// CHECK-SAME: [[ARG3:%\w+]]: tensor<f32>
// CHECK-SAME: [[ARG4:%\w+]]: tensor<8x6xf32>
// CHECK-SAME: [[ARG5:%\w+]]: tensor<8x6xf32>
// CHECK: [[IDENTITY:%\w+]] = "onnx.Identity"({{%\w+}}) {{.*}}topt.phase = "forward"} : (tensor<f32>) -> tensor<f32>
// CHECK: [[IDENTITY_3:%\w+]] = "onnx.Identity"({{%\w+}}) {topt.gradient_of = "w"{{.*}}topt.phase = "backward"} : (tensor<8x6xf32>) -> tensor<8x6xf32>
// CHECK-NEXT: [[CAST:%\w+]] = "onnx.Cast"([[ARG3]]) {to = 11 : i64{{.*}}topt.phase = "update"} : (tensor<f32>) -> tensor<f64>
// CHECK-NEXT: [[CONSTANT:%\w+]] = "onnx.Constant"() {{.*}}topt.phase = "update", value = dense<0.0316227749> : tensor<f32>} : () -> tensor<f32>
// CHECK-NEXT: [[MUL:%\w+]] = "onnx.Mul"([[IDENTITY_3]], [[CONSTANT]]) {{.*}}topt.phase = "update"} : (tensor<8x6xf32>, tensor<f32>) -> tensor<8x6xf32>
// CHECK-NEXT: [[CONSTANT_2:%\w+]] = "onnx.Constant"() {{.*}}topt.phase = "update", value = dense<1.000000e-01> : tensor<f32>} : () -> tensor<f32>
// CHECK-NEXT: [[MUL_2:%\w+]] = "onnx.Mul"([[IDENTITY_3]], [[CONSTANT_2]]) {{.*}}topt.phase = "update"} : (tensor<8x6xf32>, tensor<f32>) -> tensor<8x6xf32>
// CHECK-NEXT: [[CONSTANT_3:%\w+]] = "onnx.Constant"() {{.*}}topt.phase = "update", value = dense<0.899999976> : tensor<f32>} : () -> tensor<f32>
// CHECK-NEXT: [[MUL_3:%\w+]] = "onnx.Mul"([[ARG4]], [[CONSTANT_3]]) {{.*}}topt.phase = "update"} : (tensor<8x6xf32>, tensor<f32>) -> tensor<8x6xf32>
// CHECK-NEXT: [[ADD:%\w+]] = "onnx.Add"([[MUL_3]], [[MUL_2]]) {{.*}}topt.phase = "update"} : (tensor<8x6xf32>, tensor<8x6xf32>) -> tensor<8x6xf32>
// CHECK-NEXT: [[MUL_4:%\w+]] = "onnx.Mul"([[MUL]], [[MUL]]) {{.*}}topt.phase = "update"} : (tensor<8x6xf32>, tensor<8x6xf32>) -> tensor<8x6xf32>
// CHECK-NEXT: [[CONSTANT_4:%\w+]] = "onnx.Constant"() {{.*}}topt.phase = "update", value = dense<9.990000e-01> : tensor<f32>} : () -> tensor<f32>
// CHECK-NEXT: [[MUL_5:%\w+]] = "onnx.Mul"([[ARG5]], [[CONSTANT_4]]) {{.*}}topt.phase = "update"} : (tensor<8x6xf32>, tensor<f32>) -> tensor<8x6xf32>
// CHECK-NEXT: [[ADD_2:%\w+]] = "onnx.Add"([[MUL_5]], [[MUL_4]]) {{.*}}topt.phase = "update"} : (tensor<8x6xf32>, tensor<8x6xf32>) -> tensor<8x6xf32>
// CHECK-NEXT: [[CAST_2:%\w+]] = "onnx.Cast"([[ARG2]]) {to = 11 : i64{{.*}}topt.phase = "update"} : (tensor<f32>) -> tensor<f64>
// CHECK-NEXT: [[CONSTANT_5:%\w+]] = "onnx.Constant"() {{.*}}topt.phase = "update", value = dense<0.99899999999999999> : tensor<f64>} : () -> tensor<f64>
// CHECK-NEXT: [[POW:%\w+]] = "onnx.Pow"([[CONSTANT_5]], [[CAST_2]]) {{.*}}topt.phase = "update"} : (tensor<f64>, tensor<f64>) -> tensor<f64>
// CHECK-NEXT: [[CONSTANT_6:%\w+]] = "onnx.Constant"() {{.*}}topt.phase = "update", value = dense<1.000000e+00> : tensor<f64>} : () -> tensor<f64>
// CHECK-NEXT: [[SUB:%\w+]] = "onnx.Sub"([[CONSTANT_6]], [[POW]]) {{.*}}topt.phase = "update"} : (tensor<f64>, tensor<f64>) -> tensor<f64>
// CHECK-NEXT: [[SQRT:%\w+]] = "onnx.Sqrt"([[SUB]]) {{.*}}topt.phase = "update"} : (tensor<f64>) -> tensor<f64>
// CHECK-NEXT: [[MUL_6:%\w+]] = "onnx.Mul"([[CAST]], [[SQRT]]) {{.*}}topt.phase = "update"} : (tensor<f64>, tensor<f64>) -> tensor<f64>
// CHECK-NEXT: [[CONSTANT_7:%\w+]] = "onnx.Constant"() {{.*}}topt.phase = "update", value = dense<9.000000e-01> : tensor<f64>} : () -> tensor<f64>
// CHECK-NEXT: [[POW_2:%\w+]] = "onnx.Pow"([[CONSTANT_7]], [[CAST_2]]) {{.*}}topt.phase = "update"} : (tensor<f64>, tensor<f64>) -> tensor<f64>
// CHECK-NEXT: [[CONSTANT_8:%\w+]] = "onnx.Constant"() {{.*}}topt.phase = "update", value = dense<1.000000e+00> : tensor<f64>} : () -> tensor<f64>
// CHECK-NEXT: [[SUB_2:%\w+]] = "onnx.Sub"([[CONSTANT_8]], [[POW_2]]) {{.*}}topt.phase = "update"} : (tensor<f64>, tensor<f64>) -> tensor<f64>
// CHECK-NEXT: [[DIV:%\w+]] = "onnx.Div"([[MUL_6]], [[SUB_2]]) {{.*}}topt.phase = "update"} : (tensor<f64>, tensor<f64>) -> tensor<f64>
// CHECK-NEXT: [[CAST_3:%\w+]] = "onnx.Cast"([[DIV]]) {to = 1 : i64{{.*}}topt.phase = "update"} : (tensor<f64>) -> tensor<f32>
// CHECK-NEXT: [[CONSTANT_9:%\w+]] = "onnx.Constant"() {{.*}}topt.phase = "update", value = dense<1.000000e-08> : tensor<f64>} : () -> tensor<f64>
// CHECK-NEXT: [[MUL_7:%\w+]] = "onnx.Mul"([[SQRT]], [[CONSTANT_9]]) {{.*}}topt.phase = "update"} : (tensor<f64>, tensor<f64>) -> tensor<f64>
// CHECK-NEXT: [[CAST_4:%\w+]] = "onnx.Cast"([[MUL_7]]) {to = 1 : i64{{.*}}topt.phase = "update"} : (tensor<f64>) -> tensor<f32>
// CHECK-NEXT: [[MUL_8:%\w+]] = "onnx.Mul"([[ADD]], [[CAST_3]]) {{.*}}topt.phase = "update"} : (tensor<8x6xf32>, tensor<f32>) -> tensor<8x6xf32>
// CHECK-NEXT: [[SQRT_2:%\w+]] = "onnx.Sqrt"([[ADD_2]]) {{.*}}topt.phase = "update"} : (tensor<8x6xf32>) -> tensor<8x6xf32>
// CHECK-NEXT: [[ADD_3:%\w+]] = "onnx.Add"([[SQRT_2]], [[CAST_4]]) {{.*}}topt.phase = "update"} : (tensor<8x6xf32>, tensor<f32>) -> tensor<8x6xf32>
// CHECK-NEXT: [[DIV_2:%\w+]] = "onnx.Div"([[MUL_8]], [[ADD_3]]) {{.*}}topt.phase = "update"} : (tensor<8x6xf32>, tensor<8x6xf32>) -> tensor<8x6xf32>
// CHECK-NEXT: [[CONSTANT_10:%\w+]] = "onnx.Constant"() {{.*}}topt.phase = "update", value = dense<1.000000e-01> : tensor<f64>} : () -> tensor<f64>
// CHECK-NEXT: [[MUL_9:%\w+]] = "onnx.Mul"([[CAST]], [[CONSTANT_10]]) {{.*}}topt.phase = "update"} : (tensor<f64>, tensor<f64>) -> tensor<f64>
// CHECK-NEXT: [[CONSTANT_11:%\w+]] = "onnx.Constant"() {{.*}}topt.phase = "update", value = dense<1.000000e+00> : tensor<f64>} : () -> tensor<f64>
// CHECK-NEXT: [[SUB_3:%\w+]] = "onnx.Sub"([[CONSTANT_11]], [[MUL_9]]) {{.*}}topt.phase = "update"} : (tensor<f64>, tensor<f64>) -> tensor<f64>
// CHECK-NEXT: [[CAST_5:%\w+]] = "onnx.Cast"([[SUB_3]]) {to = 1 : i64{{.*}}topt.phase = "update"} : (tensor<f64>) -> tensor<f32>
// CHECK-NEXT: [[MUL_10:%\w+]] = "onnx.Mul"([[W]], [[CAST_5]]) {{.*}}topt.phase = "update"} : (tensor<8x6xf32>, tensor<f32>) -> tensor<8x6xf32>
// CHECK-NEXT: [[SUB_4:%\w+]] = "onnx.Sub"([[MUL_10]], [[DIV_2]]) {{.*}}topt.phase = "update"} : (tensor<8x6xf32>, tensor<8x6xf32>) -> tensor<8x6xf32>
// CHECK-NEXT: return [[IDENTITY]], [[SUB_4]], [[ADD]], [[ADD_2]] : tensor<f32>, tensor<8x6xf32>, tensor<8x6xf32>, tensor<8x6xf32>
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x"}, %w: tensor<8x6xf32> {topt.name = "w", topt.param}) -> (tensor<f32> {topt.name = "l"}) {
    %0 = "onnx.MatMul"(%x, %w) : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
    %l = "onnx.ReduceSum"(%0) {keepdims = 0 : i64} : (tensor<4x6xf32>) -> tensor<f32>
    return %l : tensor<f32>
  }
}
