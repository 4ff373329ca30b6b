// RUN: tensoropt-opt %s -p 'build-training-step{loss=output:l optimizer=sgd clip-norm=1}' | filecheck %s

// The norm of all gradients together bounds the step.

// CHECK: func.func @main
// CHECK-SAME: {{%\w+}}: tensor<4x8xf32>
// CHECK-SAME: [[W:%\w+]]: tensor<8x6xf32>
// CHECK-SAME: [[B:%\w+]]: tensor<6xf32>
// CHECK-SAME: [[ARG3:%\w+]]: tensor<f32>
// CHECK: [[IDENTITY:%\w+]] = "onnx.Identity"({{%\w+}}) {{.*}}topt.phase = "forward"} : (tensor<f32>) -> tensor<f32>
// CHECK: [[IDENTITY_3:%\w+]] = "onnx.Identity"({{%\w+}}) {topt.gradient_of = "b"{{.*}}topt.phase = "backward"} : (tensor<6xf32>) -> tensor<6xf32>
// CHECK: [[IDENTITY_5:%\w+]] = "onnx.Identity"({{%\w+}}) {topt.gradient_of = "w"{{.*}}topt.phase = "backward"} : (tensor<8x6xf32>) -> tensor<8x6xf32>
// CHECK-NEXT: [[CAST:%\w+]] = "onnx.Cast"([[ARG3]]) {to = 11 : i64{{.*}}topt.phase = "update"} : (tensor<f32>) -> tensor<f64>
// CHECK-NEXT: [[CAST_2:%\w+]] = "onnx.Cast"([[IDENTITY_5]]) {to = 11 : i64{{.*}}topt.phase = "update"} : (tensor<8x6xf32>) -> tensor<8x6xf64>
// CHECK-NEXT: [[REDUCE_SUM_SQUARE:%\w+]] = "onnx.ReduceSumSquare"([[CAST_2]]) {keepdims = 0 : i64{{.*}}topt.phase = "update"} : (tensor<8x6xf64>) -> tensor<f64>
// CHECK-NEXT: [[CAST_3:%\w+]] = "onnx.Cast"([[IDENTITY_3]]) {to = 11 : i64{{.*}}topt.phase = "update"} : (tensor<6xf32>) -> tensor<6xf64>
// CHECK-NEXT: [[REDUCE_SUM_SQUARE_2:%\w+]] = "onnx.ReduceSumSquare"([[CAST_3]]) {keepdims = 0 : i64{{.*}}topt.phase = "update"} : (tensor<6xf64>) -> tensor<f64>
// CHECK-NEXT: [[SUM:%\w+]] = "onnx.Sum"([[REDUCE_SUM_SQUARE]], [[REDUCE_SUM_SQUARE_2]]) {{.*}}topt.phase = "update"} : (tensor<f64>, tensor<f64>) -> tensor<f64>
// CHECK-NEXT: [[SQRT:%\w+]] = "onnx.Sqrt"([[SUM]]) {{.*}}topt.phase = "update"} : (tensor<f64>) -> tensor<f64>
// CHECK-NEXT: [[CONSTANT:%\w+]] = "onnx.Constant"() {{.*}}topt.phase = "update", value = dense<9.9999999999999995E-7> : tensor<f64>} : () -> tensor<f64>
// CHECK-NEXT: [[ADD:%\w+]] = "onnx.Add"([[SQRT]], [[CONSTANT]]) {{.*}}topt.phase = "update"} : (tensor<f64>, tensor<f64>) -> tensor<f64>
// CHECK-NEXT: [[CONSTANT_2:%\w+]] = "onnx.Constant"() {{.*}}topt.phase = "update", value = dense<1.000000e+00> : tensor<f64>} : () -> tensor<f64>
// CHECK-NEXT: [[DIV:%\w+]] = "onnx.Div"([[CONSTANT_2]], [[ADD]]) {{.*}}topt.phase = "update"} : (tensor<f64>, tensor<f64>) -> tensor<f64>
// CHECK-NEXT: [[CONSTANT_3:%\w+]] = "onnx.Constant"() {{.*}}topt.phase = "update", value = dense<1.000000e+00> : tensor<f64>} : () -> tensor<f64>
// CHECK-NEXT: [[MIN:%\w+]] = "onnx.Min"([[CONSTANT_3]], [[DIV]]) {{.*}}topt.phase = "update"} : (tensor<f64>, tensor<f64>) -> tensor<f64>
// CHECK-NEXT: [[MUL:%\w+]] = "onnx.Mul"([[CAST]], [[MIN]]) {{.*}}topt.phase = "update"} : (tensor<f64>, tensor<f64>) -> tensor<f64>
// CHECK-NEXT: [[CAST_4:%\w+]] = "onnx.Cast"([[MUL]]) {to = 1 : i64{{.*}}topt.phase = "update"} : (tensor<f64>) -> tensor<f32>
// CHECK-NEXT: [[MUL_2:%\w+]] = "onnx.Mul"([[IDENTITY_5]], [[CAST_4]]) {{.*}}topt.phase = "update"} : (tensor<8x6xf32>, tensor<f32>) -> tensor<8x6xf32>
// CHECK-NEXT: [[SUB:%\w+]] = "onnx.Sub"([[W]], [[MUL_2]]) {{.*}}topt.phase = "update"} : (tensor<8x6xf32>, tensor<8x6xf32>) -> tensor<8x6xf32>
// CHECK-NEXT: [[MUL_3:%\w+]] = "onnx.Mul"([[IDENTITY_3]], [[CAST_4]]) {{.*}}topt.phase = "update"} : (tensor<6xf32>, tensor<f32>) -> tensor<6xf32>
// CHECK-NEXT: [[SUB_2:%\w+]] = "onnx.Sub"([[B]], [[MUL_3]]) {{.*}}topt.phase = "update"} : (tensor<6xf32>, tensor<6xf32>) -> tensor<6xf32>
// CHECK-NEXT: return [[IDENTITY]], [[SUB]], [[SUB_2]] : tensor<f32>, tensor<8x6xf32>, tensor<6xf32>
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x"}, %w: tensor<8x6xf32> {topt.name = "w", topt.param}, %b: tensor<6xf32> {topt.name = "b", topt.param}) -> (tensor<f32> {topt.name = "l"}) {
    %1 = "onnx.MatMul"(%x, %w) : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
    %0 = "onnx.Add"(%1, %b) : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
    %l = "onnx.ReduceSum"(%0) {keepdims = 0 : i64} : (tensor<4x6xf32>) -> tensor<f32>
    return %l : tensor<f32>
  }
}
