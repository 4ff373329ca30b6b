// RUN: tensoropt-opt %s -p 'build-training-step{loss=output:l optimizer=sgd freeze=w}' | filecheck %s

// A frozen parameter stays one.

// CHECK: func.func @main
// CHECK-SAME: {{%\w+}}: tensor<4x8xf32>
// CHECK-SAME: {{%\w+}}: tensor<8x6xf32>
// CHECK-SAME: [[B:%\w+]]: tensor<6xf32>
// CHECK-SAME: [[ARG3:%\w+]]: tensor<f32>
// CHECK: [[IDENTITY:%\w+]] = "onnx.Identity"({{%\w+}}) {{.*}}topt.phase = "forward"} : (tensor<f32>) -> tensor<f32>
// CHECK: [[IDENTITY_3:%\w+]] = "onnx.Identity"({{%\w+}}) {topt.gradient_of = "b"{{.*}}topt.phase = "backward"} : (tensor<6xf32>) -> tensor<6xf32>
// CHECK-NEXT: [[CAST:%\w+]] = "onnx.Cast"([[ARG3]]) {to = 11 : i64{{.*}}topt.phase = "update"} : (tensor<f32>) -> tensor<f64>
// CHECK-NEXT: [[CAST_2:%\w+]] = "onnx.Cast"([[CAST]]) {to = 1 : i64{{.*}}topt.phase = "update"} : (tensor<f64>) -> tensor<f32>
// CHECK-NEXT: [[MUL:%\w+]] = "onnx.Mul"([[IDENTITY_3]], [[CAST_2]]) {{.*}}topt.phase = "update"} : (tensor<6xf32>, tensor<f32>) -> tensor<6xf32>
// CHECK-NEXT: [[SUB:%\w+]] = "onnx.Sub"([[B]], [[MUL]]) {{.*}}topt.phase = "update"} : (tensor<6xf32>, tensor<6xf32>) -> tensor<6xf32>
// CHECK-NEXT: return [[IDENTITY]], [[SUB]] : tensor<f32>, tensor<6xf32>
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x"}, %w: tensor<8x6xf32> {topt.name = "w", topt.param}, %b: tensor<6xf32> {topt.name = "b", topt.param}) -> (tensor<f32> {topt.name = "l"}) {
    %1 = "onnx.MatMul"(%x, %w) : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
    %0 = "onnx.Add"(%1, %b) : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
    %l = "onnx.ReduceSum"(%0) {keepdims = 0 : i64} : (tensor<4x6xf32>) -> tensor<f32>
    return %l : tensor<f32>
  }
}
