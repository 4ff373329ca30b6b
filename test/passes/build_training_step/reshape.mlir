// RUN: tensoropt-opt %s -p 'build-training-step{loss=output:l optimizer=sgd}' | filecheck %s

// Back to the shape that it had.

// CHECK: func.func @main
// CHECK-SAME: {{%\w+}}: tensor<4x8xf32>
// CHECK-SAME: {{%\w+}}: tensor<f32>
// CHECK: [[EXPAND:%\w+]] = "onnx.Expand"({{%\w+}}, {{%\w+}}) {{.*}}topt.phase = "backward"} : (tensor<1xf32>, tensor<1xi64>) -> tensor<32xf32>
// CHECK-NEXT: [[CONSTANT_5:%\w+]] = "onnx.Constant"() {{.*}}topt.phase = "backward", value = dense<[4, 8]> : tensor<2xi64>} : () -> tensor<2xi64>
// CHECK-NEXT: [[RESHAPE_2:%\w+]] = "onnx.Reshape"([[EXPAND]], [[CONSTANT_5]]) {{.*}}topt.phase = "backward"} : (tensor<32xf32>, tensor<2xi64>) -> tensor<4x8xf32>
// CHECK-NEXT: {{%\w+}} = "onnx.Identity"([[RESHAPE_2]]) {topt.gradient_of = "w"{{.*}}topt.phase = "backward"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%w: tensor<4x8xf32> {topt.name = "w", topt.param}) -> (tensor<f32> {topt.name = "l"}) {
    %s = "onnx.Constant"() {value = dense<[32]> : tensor<1xi64>} : () -> tensor<1xi64>
    %0 = "onnx.Reshape"(%w, %s) : (tensor<4x8xf32>, tensor<1xi64>) -> tensor<32xf32>
    %l = "onnx.ReduceSum"(%0) {keepdims = 0 : i64} : (tensor<32xf32>) -> tensor<f32>
    return %l : tensor<f32>
  }
}
