// RUN: tensoropt-opt %s -p 'build-training-step{loss=output:l optimizer=sgd recompute=auto}' | filecheck %s

// One function, marked until the search chooses; the backward pass reads forward values directly.
// CHECK: module attributes {topt.opset = {ai.onnx = 20 : i64}, topt.passed = "train", topt.training = {{{.*}}loss = "output:l"{{.*}}optimizer = "sgd"{{.*}}recompute = "auto"
// CHECK: func.func @main(
// CHECK-SAME: attributes {topt.recompute = "auto"}
// CHECK: %[[T:.*]] = "onnx.Tanh"
// CHECK: "onnx.Mul"(%[[T]], %[[T]])
// CHECK-NOT: func.func
// CHECK-NOT: topt.phase = "recompute"
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x"}, %w: tensor<8x8xf32> {topt.name = "w", topt.param}, %v: tensor<8x2xf32> {topt.name = "v", topt.param}) -> (tensor<f32> {topt.name = "l"}) {
    %0 = "onnx.MatMul"(%x, %w) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %1 = "onnx.Tanh"(%0) : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %2 = "onnx.MatMul"(%1, %v) : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
    %3 = "onnx.ReduceSum"(%2) {keepdims = 0 : i64} : (tensor<4x2xf32>) -> tensor<f32>
    return %3 : tensor<f32>
  }
}
