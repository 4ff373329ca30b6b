// RUN: tensoropt-opt %s -p 'fold-transposes{all=true}' | filecheck %s

// A weight that is read transposed alone: a training step will read it to update it.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<3x4xf32> {topt.name = "x"}, %w: tensor<8x4xf32> {topt.name = "w", topt.param}) -> (tensor<3x8xf32> {topt.name = "a"}) {
    %0 = "onnx.Transpose"(%w) {perm = array<i64: 1, 0>} : (tensor<8x4xf32>) -> tensor<4x8xf32>
    // CHECK-NEXT: %[[A:.*]] = "onnx.Gemm"([[ARG0:%\w+]], [[ARG1:%\w+]]) {transB = 1 : i64}
    %1 = "onnx.MatMul"(%x, %0) : (tensor<3x4xf32>, tensor<4x8xf32>) -> tensor<3x8xf32>
    // CHECK-NEXT: return %[[A]]
    return %1 : tensor<3x8xf32>
  }
}
