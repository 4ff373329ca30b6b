// RUN: tensoropt-opt %s -p 'build-training-step{loss=output:l optimizer=sgd}' | filecheck %s

// Each part gets its slice.

// CHECK: func.func @main
// CHECK-SAME: {{%\w+}}: tensor<4x8xf32>
// CHECK-SAME: {{%\w+}}: tensor<4x8xf32>
// CHECK-SAME: {{%\w+}}: tensor<f32>
// CHECK: [[EXPAND:%\w+]] = "onnx.Expand"({{%\w+}}, {{%\w+}}) {{.*}}topt.phase = "backward"} : (tensor<1x1xf32>, tensor<2xi64>) -> tensor<8x8xf32>
// CHECK-NEXT: [[CONSTANT_4:%\w+]] = "onnx.Constant"() {{.*}}topt.phase = "backward", value = dense<4> : tensor<2xi64>} : () -> tensor<2xi64>
// CHECK-NEXT: [[SPLIT:%\w+]]:2 = "onnx.Split"([[EXPAND]], [[CONSTANT_4]]) {axis = 0 : i64{{.*}}topt.phase = "backward"} : (tensor<8x8xf32>, tensor<2xi64>) -> (tensor<4x8xf32>, tensor<4x8xf32>)
// CHECK-NEXT: {{%\w+}} = "onnx.Identity"([[SPLIT]]#1) {topt.gradient_of = "v"{{.*}}topt.phase = "backward"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK-NEXT: {{%\w+}} = "onnx.Identity"([[SPLIT]]#0) {topt.gradient_of = "w"{{.*}}topt.phase = "backward"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%w: tensor<4x8xf32> {topt.name = "w", topt.param}, %v: tensor<4x8xf32> {topt.name = "v", topt.param}) -> (tensor<f32> {topt.name = "l"}) {
    %0 = "onnx.Concat"(%w, %v) {axis = 0 : i64} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<8x8xf32>
    %l = "onnx.ReduceSum"(%0) {keepdims = 0 : i64} : (tensor<8x8xf32>) -> tensor<f32>
    return %l : tensor<f32>
  }
}
