// RUN: tensoropt-opt %s -p fold-transposes --split-input-file | filecheck %s

// A weight that is read both ways: of matrices a Gemm, of more dimensions ONNX Runtime's product.
// CHECK: module attributes {topt.opset = {ai.onnx = 20 : i64, com.microsoft = 1 : i64}}
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%ids: tensor<2x3xi64> {topt.name = "ids"}, %x: tensor<3x4xf32> {topt.name = "x"}, %w: tensor<8x4xf32> {topt.name = "w", topt.param}) -> (tensor<2x3x8xf32> {topt.name = "a"}, tensor<3x8xf32> {topt.name = "b"}) {
    // CHECK-NEXT: %[[E:.*]] = "onnx.Gather"([[ARG2:%\w+]], [[ARG0:%\w+]])
    %0 = "onnx.Gather"(%w, %ids) : (tensor<8x4xf32>, tensor<2x3xi64>) -> tensor<2x3x4xf32>
    %1 = "onnx.Transpose"(%w) {perm = array<i64: 1, 0>} : (tensor<8x4xf32>) -> tensor<4x8xf32>
    // CHECK-NEXT: %[[A:.*]] = "onnx.com.microsoft.FusedMatMul"(%[[E]], [[ARG2]]) {transB = 1 : i64} : (tensor<2x3x4xf32>, tensor<8x4xf32>) -> tensor<2x3x8xf32>
    %2 = "onnx.MatMul"(%0, %1) : (tensor<2x3x4xf32>, tensor<4x8xf32>) -> tensor<2x3x8xf32>
    // Without perm the order is reversed.
    %3 = "onnx.Transpose"(%w) : (tensor<8x4xf32>) -> tensor<4x8xf32>
    // CHECK-NEXT: %[[B:.*]] = "onnx.Gemm"([[ARG1:%\w+]], [[ARG2]]) {transB = 1 : i64} : (tensor<3x4xf32>, tensor<8x4xf32>) -> tensor<3x8xf32>
    %4 = "onnx.MatMul"(%x, %3) : (tensor<3x4xf32>, tensor<4x8xf32>) -> tensor<3x8xf32>
    // CHECK-NEXT: return %[[A]], %[[B]]
    return %2, %4 : tensor<2x3x8xf32>, tensor<3x8xf32>
  }
}

// -----

// What turns already turns back; other attributes and operands stay. Either operand, or both.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64, com.microsoft = 1 : i64}} {
  func.func @main(%x: tensor<4x5xf16> {topt.name = "x"}, %y: tensor<2x4x5xf16> {topt.name = "y"}, %w: tensor<4x4xf16> {topt.name = "w", topt.param}) -> (tensor<4x5xf16> {topt.name = "a"}, tensor<2x4x5xf16> {topt.name = "b"}, tensor<4x4xf16> {topt.name = "c"}) {
    %0 = "onnx.Transpose"(%w) {perm = array<i64: 1, 0>} : (tensor<4x4xf16>) -> tensor<4x4xf16>
    // CHECK-NEXT: %[[A:.*]] = "onnx.Gemm"([[ARG2:%\w+]], [[ARG0:%\w+]], [[ARG0]]) {alpha = 2.000000e+00 : f32, transA = 0 : i64}
    %1 = "onnx.Gemm"(%0, %x, %x) {alpha = 2.0 : f32, transA = 1 : i64} : (tensor<4x4xf16>, tensor<4x5xf16>, tensor<4x5xf16>) -> tensor<4x5xf16>
    // CHECK-NEXT: %[[B:.*]] = "onnx.com.microsoft.FusedMatMul"([[ARG2]], [[ARG1:%\w+]]) {alpha = 5.000000e-01 : f32, transA = 1 : i64}
    %2 = "onnx.com.microsoft.FusedMatMul"(%0, %y) {alpha = 0.5 : f32} : (tensor<4x4xf16>, tensor<2x4x5xf16>) -> tensor<2x4x5xf16>
    // CHECK-NEXT: %[[C:.*]] = "onnx.Gemm"([[ARG2]], [[ARG2]]) {transA = 1 : i64, transB = 1 : i64}
    %3 = "onnx.MatMul"(%0, %0) : (tensor<4x4xf16>, tensor<4x4xf16>) -> tensor<4x4xf16>
    // CHECK-NEXT: %[[D:.*]] = "onnx.Add"(%[[C]], [[ARG2]])
    %4 = "onnx.Add"(%3, %w) : (tensor<4x4xf16>, tensor<4x4xf16>) -> tensor<4x4xf16>
    // CHECK-NEXT: return %[[A]], %[[B]], %[[D]]
    return %1, %2, %4 : tensor<4x5xf16>, tensor<2x4x5xf16>, tensor<4x4xf16>
  }
}

// -----

// A batch of matrices, whose last two dimensions swap; before opset 11 Gemm adds something. What
// lies inside of a branch is folded too.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 10 : i64}} {
  func.func @main(%x: tensor<2x3x4xf64> {topt.name = "x"}, %z: tensor<3x4xf64> {topt.name = "z"}, %c: tensor<i1> {topt.name = "c"}, %w: tensor<2x5x4xf64> {topt.name = "w", topt.param}, %v: tensor<5x4xf64> {topt.name = "v", topt.param}) -> (tensor<2x3x5xf64> {topt.name = "a"}, tensor<3x5xf64> {topt.name = "b"}, tensor<2x5x4xf64> {topt.name = "d"}, tensor<5x4xf64> {topt.name = "e"}) {
    %0 = "onnx.Transpose"(%w) {perm = array<i64: 0, 2, 1>} : (tensor<2x5x4xf64>) -> tensor<2x4x5xf64>
    %1 = "onnx.Transpose"(%v) : (tensor<5x4xf64>) -> tensor<4x5xf64>
    // CHECK: "onnx.com.microsoft.FusedMatMul"([[ARG0:%\w+]], [[ARG3:%\w+]]) {transB = 1 : i64}
    %2 = "onnx.MatMul"(%x, %0) : (tensor<2x3x4xf64>, tensor<2x4x5xf64>) -> tensor<2x3x5xf64>
    // CHECK: "onnx.If"([[ARG2:%\w+]])
    // CHECK: "onnx.com.microsoft.FusedMatMul"([[ARG1:%\w+]], [[ARG4:%\w+]]) {transB = 1 : i64}
    %3 = "onnx.If"(%c) ({
      %6 = "onnx.MatMul"(%z, %1) : (tensor<3x4xf64>, tensor<4x5xf64>) -> tensor<3x5xf64>
      "onnx.Yield"(%6) : (tensor<3x5xf64>) -> ()
    }, {
      %6 = "onnx.MatMul"(%z, %1) : (tensor<3x4xf64>, tensor<4x5xf64>) -> tensor<3x5xf64>
      "onnx.Yield"(%6) : (tensor<3x5xf64>) -> ()
    }) {topt.regions = ["else_branch", "then_branch"]} : (tensor<i1>) -> tensor<3x5xf64>
    %4 = "onnx.Neg"(%w) : (tensor<2x5x4xf64>) -> tensor<2x5x4xf64>
    %5 = "onnx.Neg"(%v) : (tensor<5x4xf64>) -> tensor<5x4xf64>
    // CHECK-NOT: onnx.Transpose
    return %2, %3, %4, %5 : tensor<2x3x5xf64>, tensor<3x5xf64>, tensor<2x5x4xf64>, tensor<5x4xf64>
  }
}

// -----

// It stays: of an input, of a weight that is read in no other way, in another order, of whole
// numbers, of a vector's product, and where one use needs the copy anyway.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<4x4xf32> {topt.name = "x"}, %i: tensor<4x4xi32> {topt.name = "i"}, %k: tensor<4xf32> {topt.name = "k"}, %v: tensor<4x4xf32> {topt.name = "v", topt.param}, %w: tensor<4x4xf32> {topt.name = "w", topt.param}, %b: tensor<2x2x2xf32> {topt.name = "b", topt.param}, %n: tensor<4x4xi32> {topt.name = "n", topt.param}) -> (tensor<4x4xf32> {topt.name = "a"}, tensor<4x4xf32> {topt.name = "b"}, tensor<2x2x2xf32> {topt.name = "c"}, tensor<4x4xi32> {topt.name = "d"}, tensor<4xf32> {topt.name = "e"}, tensor<4x4xf32> {topt.name = "f"}) {
    // CHECK-COUNT-6: onnx.Transpose
    %0 = "onnx.Transpose"(%x) : (tensor<4x4xf32>) -> tensor<4x4xf32>
    %1 = "onnx.MatMul"(%x, %0) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %2 = "onnx.Transpose"(%v) : (tensor<4x4xf32>) -> tensor<4x4xf32>
    %3 = "onnx.MatMul"(%x, %2) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %4 = "onnx.Transpose"(%b) {perm = array<i64: 1, 0, 2>} : (tensor<2x2x2xf32>) -> tensor<2x2x2xf32>
    %5 = "onnx.MatMul"(%b, %4) : (tensor<2x2x2xf32>, tensor<2x2x2xf32>) -> tensor<2x2x2xf32>
    %6 = "onnx.Transpose"(%n) : (tensor<4x4xi32>) -> tensor<4x4xi32>
    %7 = "onnx.MatMul"(%n, %6) : (tensor<4x4xi32>, tensor<4x4xi32>) -> tensor<4x4xi32>
    %8 = "onnx.Transpose"(%w) : (tensor<4x4xf32>) -> tensor<4x4xf32>
    %9 = "onnx.MatMul"(%k, %8) : (tensor<4xf32>, tensor<4x4xf32>) -> tensor<4xf32>
    %10 = "onnx.Transpose"(%w) : (tensor<4x4xf32>) -> tensor<4x4xf32>
    %11 = "onnx.MatMul"(%w, %10) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    // CHECK-NOT: transB
    return %1, %3, %5, %7, %9, %11 : tensor<4x4xf32>, tensor<4x4xf32>, tensor<2x2x2xf32>, tensor<4x4xi32>, tensor<4xf32>, tensor<4x4xf32>
  }
}
