// RUN: tensoropt-opt %s -p 'build-training-step{loss=output:l optimizer=sgd}' | filecheck %s

// Each side where it was taken.

// CHECK: func.func @main
// CHECK-SAME: [[K:%\w+]]: tensor<4x8xi1>
// CHECK-SAME: {{%\w+}}: tensor<4x8xf32>
// CHECK-SAME: {{%\w+}}: tensor<4x8xf32>
// CHECK-SAME: {{%\w+}}: tensor<f32>
// CHECK: [[EXPAND:%\w+]] = "onnx.Expand"({{%\w+}}, {{%\w+}}) {{.*}}topt.phase = "backward"} : (tensor<1x1xf32>, tensor<2xi64>) -> tensor<4x8xf32>
// CHECK-NEXT: [[CONSTANT_4:%\w+]] = "onnx.Constant"() {{.*}}topt.phase = "backward", value = dense<0.000000e+00> : tensor<f32>} : () -> tensor<f32>
// CHECK-NEXT: [[WHERE_2:%\w+]] = "onnx.Where"([[K]], [[EXPAND]], [[CONSTANT_4]]) {{.*}}topt.phase = "backward"} : (tensor<4x8xi1>, tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
// CHECK-NEXT: {{%\w+}} = "onnx.Identity"([[WHERE_2]]) {topt.gradient_of = "w"{{.*}}topt.phase = "backward"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK-NEXT: [[WHERE_3:%\w+]] = "onnx.Where"([[K]], [[CONSTANT_4]], [[EXPAND]]) {{.*}}topt.phase = "backward"} : (tensor<4x8xi1>, tensor<f32>, tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK-NEXT: {{%\w+}} = "onnx.Identity"([[WHERE_3]]) {topt.gradient_of = "v"{{.*}}topt.phase = "backward"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%k: tensor<4x8xi1> {topt.name = "k"}, %w: tensor<4x8xf32> {topt.name = "w", topt.param}, %v: tensor<4x8xf32> {topt.name = "v", topt.param}) -> (tensor<f32> {topt.name = "l"}) {
    %0 = "onnx.Where"(%k, %w, %v) : (tensor<4x8xi1>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
    %l = "onnx.ReduceSum"(%0) {keepdims = 0 : i64} : (tensor<4x8xf32>) -> tensor<f32>
    return %l : tensor<f32>
  }
}
