// RUN: tensoropt-opt %s -p 'build-training-step{loss=output:l optimizer=sgd}' | filecheck %s

// By the result.

// CHECK: func.func @main
// CHECK-SAME: [[W:%\w+]]: tensor<4x8xf32>
// CHECK-SAME: {{%\w+}}: tensor<f32>
// CHECK: [[EXP:%\w+]] = "onnx.Exp"([[W]]) {{.*}}topt.phase = "forward"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK: [[EXPAND:%\w+]] = "onnx.Expand"({{%\w+}}, {{%\w+}}) {{.*}}topt.phase = "backward"} : (tensor<1x1xf32>, tensor<2xi64>) -> tensor<4x8xf32>
// CHECK-NEXT: [[MUL:%\w+]] = "onnx.Mul"([[EXPAND]], [[EXP]]) {{.*}}topt.phase = "backward"} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK-NEXT: {{%\w+}} = "onnx.Identity"([[MUL]]) {topt.gradient_of = "w"{{.*}}topt.phase = "backward"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%w: tensor<4x8xf32> {topt.name = "w", topt.param}) -> (tensor<f32> {topt.name = "l"}) {
    %0 = "onnx.Exp"(%w) : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %l = "onnx.ReduceSum"(%0) {keepdims = 0 : i64} : (tensor<4x8xf32>) -> tensor<f32>
    return %l : tensor<f32>
  }
}
