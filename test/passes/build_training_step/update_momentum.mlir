// RUN: tensoropt-opt %s -p 'build-training-step{loss=output:l optimizer=momentum}' | filecheck %s

// One moment.

// CHECK: func.func @main
// CHECK-SAME: {{%\w+}}: tensor<4x8xf32>
// CHECK-SAME: [[W:%\w+]]: tensor<8x6xf32>
// CHECK-SAME: [[ARG2:%\w+]]: tensor<f32>
// CHECK-SAME: [[ARG3:%\w+]]: tensor<8x6xf32>
// CHECK: [[IDENTITY:%\w+]] = "onnx.Identity"({{%\w+}}) {{.*}}topt.phase = "forward"} : (tensor<f32>) -> tensor<f32>
// CHECK: [[IDENTITY_3:%\w+]] = "onnx.Identity"({{%\w+}}) {topt.gradient_of = "w"{{.*}}topt.phase = "backward"} : (tensor<8x6xf32>) -> tensor<8x6xf32>
// CHECK-NEXT: [[CAST:%\w+]] = "onnx.Cast"([[ARG2]]) {to = 11 : i64{{.*}}topt.phase = "update"} : (tensor<f32>) -> tensor<f64>
// CHECK-NEXT: [[CONSTANT_4:%\w+]] = "onnx.Constant"() {{.*}}topt.phase = "update", value = dense<0.899999976> : tensor<f32>} : () -> tensor<f32>
// CHECK-NEXT: [[MUL:%\w+]] = "onnx.Mul"([[ARG3]], [[CONSTANT_4]]) {{.*}}topt.phase = "update"} : (tensor<8x6xf32>, tensor<f32>) -> tensor<8x6xf32>
// CHECK-NEXT: [[ADD:%\w+]] = "onnx.Add"([[MUL]], [[IDENTITY_3]]) {{.*}}topt.phase = "update"} : (tensor<8x6xf32>, tensor<8x6xf32>) -> tensor<8x6xf32>
// CHECK-NEXT: [[CAST_2:%\w+]] = "onnx.Cast"([[CAST]]) {to = 1 : i64{{.*}}topt.phase = "update"} : (tensor<f64>) -> tensor<f32>
// CHECK-NEXT: [[MUL_2:%\w+]] = "onnx.Mul"([[ADD]], [[CAST_2]]) {{.*}}topt.phase = "update"} : (tensor<8x6xf32>, tensor<f32>) -> tensor<8x6xf32>
// CHECK-NEXT: [[SUB:%\w+]] = "onnx.Sub"([[W]], [[MUL_2]]) {{.*}}topt.phase = "update"} : (tensor<8x6xf32>, tensor<8x6xf32>) -> tensor<8x6xf32>
// CHECK-NEXT: return [[IDENTITY]], [[SUB]], [[ADD]] : tensor<f32>, tensor<8x6xf32>, tensor<8x6xf32>
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x"}, %w: tensor<8x6xf32> {topt.name = "w", topt.param}) -> (tensor<f32> {topt.name = "l"}) {
    %0 = "onnx.MatMul"(%x, %w) : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
    %l = "onnx.ReduceSum"(%0) {keepdims = 0 : i64} : (tensor<4x6xf32>) -> tensor<f32>
    return %l : tensor<f32>
  }
}
