// RUN: tensoropt-opt %s -p 'build-training-step{loss=output:l optimizer=sgd}' | filecheck %s

// Transposed back.

// CHECK: func.func @main
// CHECK-SAME: {{%\w+}}: tensor<4x8xf32>
// CHECK-SAME: {{%\w+}}: tensor<f32>
// CHECK: [[EXPAND:%\w+]] = "onnx.Expand"({{%\w+}}, {{%\w+}}) {{.*}}topt.phase = "backward"} : (tensor<1x1xf32>, tensor<2xi64>) -> tensor<8x4xf32>
// CHECK-NEXT: [[TRANSPOSE_2:%\w+]] = "onnx.Transpose"([[EXPAND]]) {perm = array<i64: 1, 0>{{.*}}topt.phase = "backward"} : (tensor<8x4xf32>) -> tensor<4x8xf32>
// CHECK-NEXT: {{%\w+}} = "onnx.Identity"([[TRANSPOSE_2]]) {topt.gradient_of = "w"{{.*}}topt.phase = "backward"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%w: tensor<4x8xf32> {topt.name = "w", topt.param}) -> (tensor<f32> {topt.name = "l"}) {
    %0 = "onnx.Transpose"(%w) {perm = array<i64: 1, 0>} : (tensor<4x8xf32>) -> tensor<8x4xf32>
    %l = "onnx.ReduceSum"(%0) {keepdims = 0 : i64} : (tensor<8x4xf32>) -> tensor<f32>
    return %l : tensor<f32>
  }
}
