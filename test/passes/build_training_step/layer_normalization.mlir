// RUN: tensoropt-opt %s -p 'build-training-step{loss=output:l optimizer=sgd}' | filecheck %s

// Of the operand and of the scale.

// CHECK: func.func @main
// CHECK-SAME: [[W:%\w+]]: tensor<4x8xf32>
// CHECK-SAME: [[S:%\w+]]: tensor<8xf32>
// CHECK-SAME: {{%\w+}}: tensor<f32>
// CHECK: [[LAYER_NORMALIZATION:%\w+]]:3 = "onnx.LayerNormalization"([[W]], [[S]]) {axis = 1 : i64, epsilon = 9.99999974E-6 : f32, stash_type = 1 : i64{{.*}}topt.phase = "forward"} : (tensor<4x8xf32>, tensor<8xf32>) -> (tensor<4x8xf32>, tensor<4x1xf32>, tensor<4x1xf32>)
// CHECK: [[EXPAND:%\w+]] = "onnx.Expand"({{%\w+}}, {{%\w+}}) {{.*}}topt.phase = "backward"} : (tensor<1x1xf32>, tensor<2xi64>) -> tensor<4x8xf32>
// CHECK-NEXT: [[SUB:%\w+]] = "onnx.Sub"([[W]], [[LAYER_NORMALIZATION]]#1) {{.*}}topt.phase = "backward"} : (tensor<4x8xf32>, tensor<4x1xf32>) -> tensor<4x8xf32>
// CHECK-NEXT: [[MUL:%\w+]] = "onnx.Mul"([[SUB]], [[LAYER_NORMALIZATION]]#2) {{.*}}topt.phase = "backward"} : (tensor<4x8xf32>, tensor<4x1xf32>) -> tensor<4x8xf32>
// CHECK-NEXT: [[MUL_2:%\w+]] = "onnx.Mul"([[EXPAND]], [[MUL]]) {{.*}}topt.phase = "backward"} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK-NEXT: [[MUL_3:%\w+]] = "onnx.Mul"([[EXPAND]], [[S]]) {{.*}}topt.phase = "backward"} : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
// CHECK-NEXT: [[MUL_4:%\w+]] = "onnx.Mul"([[MUL_2]], [[S]]) {{.*}}topt.phase = "backward"} : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
// CHECK-NEXT: [[CONSTANT_4:%\w+]] = "onnx.Constant"() {{.*}}topt.phase = "backward", value = dense<1> : tensor<1xi64>} : () -> tensor<1xi64>
// CHECK-NEXT: [[REDUCE_SUM_2:%\w+]] = "onnx.ReduceSum"([[MUL_4]], [[CONSTANT_4]]) {keepdims = 1 : i64{{.*}}topt.phase = "backward"} : (tensor<4x8xf32>, tensor<1xi64>) -> tensor<4x1xf32>
// CHECK-NEXT: [[CONSTANT_5:%\w+]] = "onnx.Constant"() {{.*}}topt.phase = "backward", value = dense<1.250000e-01> : tensor<f32>} : () -> tensor<f32>
// CHECK-NEXT: [[MUL_5:%\w+]] = "onnx.Mul"([[REDUCE_SUM_2]], [[CONSTANT_5]]) {{.*}}topt.phase = "backward"} : (tensor<4x1xf32>, tensor<f32>) -> tensor<4x1xf32>
// CHECK-NEXT: [[MUL_6:%\w+]] = "onnx.Mul"([[MUL]], [[MUL_5]]) {{.*}}topt.phase = "backward"} : (tensor<4x8xf32>, tensor<4x1xf32>) -> tensor<4x8xf32>
// CHECK-NEXT: [[SUB_2:%\w+]] = "onnx.Sub"([[MUL_3]], [[MUL_6]]) {{.*}}topt.phase = "backward"} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK-NEXT: [[CONSTANT_6:%\w+]] = "onnx.Constant"() {{.*}}topt.phase = "backward", value = dense<1> : tensor<1xi64>} : () -> tensor<1xi64>
// CHECK-NEXT: [[REDUCE_SUM_3:%\w+]] = "onnx.ReduceSum"([[MUL_3]], [[CONSTANT_6]]) {keepdims = 1 : i64{{.*}}topt.phase = "backward"} : (tensor<4x8xf32>, tensor<1xi64>) -> tensor<4x1xf32>
// CHECK-NEXT: [[CONSTANT_7:%\w+]] = "onnx.Constant"() {{.*}}topt.phase = "backward", value = dense<1.250000e-01> : tensor<f32>} : () -> tensor<f32>
// CHECK-NEXT: [[MUL_7:%\w+]] = "onnx.Mul"([[REDUCE_SUM_3]], [[CONSTANT_7]]) {{.*}}topt.phase = "backward"} : (tensor<4x1xf32>, tensor<f32>) -> tensor<4x1xf32>
// CHECK-NEXT: [[SUB_3:%\w+]] = "onnx.Sub"([[SUB_2]], [[MUL_7]]) {{.*}}topt.phase = "backward"} : (tensor<4x8xf32>, tensor<4x1xf32>) -> tensor<4x8xf32>
// CHECK-NEXT: [[MUL_8:%\w+]] = "onnx.Mul"([[SUB_3]], [[LAYER_NORMALIZATION]]#2) {{.*}}topt.phase = "backward"} : (tensor<4x8xf32>, tensor<4x1xf32>) -> tensor<4x8xf32>
// CHECK-NEXT: {{%\w+}} = "onnx.Identity"([[MUL_8]]) {topt.gradient_of = "w"{{.*}}topt.phase = "backward"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK-NEXT: [[CONSTANT_8:%\w+]] = "onnx.Constant"() {{.*}}topt.phase = "backward", value = dense<0> : tensor<1xi64>} : () -> tensor<1xi64>
// CHECK-NEXT: [[REDUCE_SUM_4:%\w+]] = "onnx.ReduceSum"([[MUL_2]], [[CONSTANT_8]]) {keepdims = 0 : i64{{.*}}topt.phase = "backward"} : (tensor<4x8xf32>, tensor<1xi64>) -> tensor<8xf32>
// CHECK-NEXT: {{%\w+}} = "onnx.Identity"([[REDUCE_SUM_4]]) {topt.gradient_of = "s"{{.*}}topt.phase = "backward"} : (tensor<8xf32>) -> tensor<8xf32>
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%w: tensor<4x8xf32> {topt.name = "w", topt.param}, %s: tensor<8xf32> {topt.name = "s", topt.param}) -> (tensor<f32> {topt.name = "l"}) {
    %0 = "onnx.LayerNormalization"(%w, %s) {axis = -1 : i64} : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
    %l = "onnx.ReduceSum"(%0) {keepdims = 0 : i64} : (tensor<4x8xf32>) -> tensor<f32>
    return %l : tensor<f32>
  }
}
