// RUN: tensoropt-opt %s -p 'build-training-step{loss=output:l optimizer=sgd}' | filecheck %s

// A kernel, by a convolution of the operand with the gradient.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<2x4x8x8xf32>
// CHECK-SAME: {{%\w+}}: tensor<6x4x3x3xf32>
// CHECK-SAME: {{%\w+}}: tensor<f32>
// CHECK: [[EXPAND:%\w+]] = "onnx.Expand"({{%\w+}}, {{%\w+}}) {{.*}}topt.phase = "backward"} : (tensor<1x1x1x1xf32>, tensor<4xi64>) -> tensor<2x6x8x8xf32>
// CHECK-NEXT: [[TRANSPOSE:%\w+]] = "onnx.Transpose"([[X]]) {perm = array<i64: 1, 0, 2, 3>{{.*}}topt.phase = "backward"} : (tensor<2x4x8x8xf32>) -> tensor<4x2x8x8xf32>
// CHECK-NEXT: [[TRANSPOSE_2:%\w+]] = "onnx.Transpose"([[EXPAND]]) {perm = array<i64: 1, 0, 2, 3>{{.*}}topt.phase = "backward"} : (tensor<2x6x8x8xf32>) -> tensor<6x2x8x8xf32>
// CHECK-NEXT: [[CONV_2:%\w+]] = "onnx.Conv"([[TRANSPOSE]], [[TRANSPOSE_2]]) {dilations = array<i64: 1, 1>, group = 1 : i64, kernel_shape = array<i64: 8, 8>, pads = array<i64: 1, 1, 1, 1>, strides = array<i64: 1, 1>{{.*}}topt.phase = "backward"} : (tensor<4x2x8x8xf32>, tensor<6x2x8x8xf32>) -> tensor<4x6x3x3xf32>
// CHECK-NEXT: [[TRANSPOSE_3:%\w+]] = "onnx.Transpose"([[CONV_2]]) {perm = array<i64: 1, 0, 2, 3>{{.*}}topt.phase = "backward"} : (tensor<4x6x3x3xf32>) -> tensor<6x4x3x3xf32>
// CHECK-NEXT: {{%\w+}} = "onnx.Identity"([[TRANSPOSE_3]]) {topt.gradient_of = "k"{{.*}}topt.phase = "backward"} : (tensor<6x4x3x3xf32>) -> tensor<6x4x3x3xf32>
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<2x4x8x8xf32> {topt.name = "x"}, %k: tensor<6x4x3x3xf32> {topt.name = "k", topt.param}) -> (tensor<f32> {topt.name = "l"}) {
    %0 = "onnx.Conv"(%x, %k) {kernel_shape = array<i64: 3, 3>, pads = array<i64: 1, 1, 1, 1>} : (tensor<2x4x8x8xf32>, tensor<6x4x3x3xf32>) -> tensor<2x6x8x8xf32>
    %l = "onnx.ReduceSum"(%0) {keepdims = 0 : i64} : (tensor<2x6x8x8xf32>) -> tensor<f32>
    return %l : tensor<f32>
  }
}
