// RUN: tensoropt-opt %s -p unmerge-rows,dce --split-input-file | filecheck %s

// A layer of 6 samples, and what follows it: a product and a sum, of samples.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<6x2x4xf32> {topt.name = "x"}, %w: tensor<4x8xf32> {topt.name = "w", topt.param}, %c: tensor<8xf32> {topt.name = "c", topt.param}) -> (tensor<6x2x8xf32> {topt.name = "y"}) {
    // CHECK-NEXT: %[[P:.*]] = "onnx.MatMul"([[ARG0:%\w+]], [[ARG1:%\w+]]) : (tensor<6x2x4xf32>, tensor<4x8xf32>) -> tensor<6x2x8xf32>
    // CHECK-NEXT: %[[S:.*]] = "onnx.Add"(%[[P]], [[ARG2:%\w+]]) : (tensor<6x2x8xf32>, tensor<8xf32>) -> tensor<6x2x8xf32>
    // CHECK-NEXT: return %[[S]]
    %rows = "onnx.Constant"() {value = dense<[12, 4]> : tensor<2xi64>} : () -> tensor<2xi64>
    %back = "onnx.Constant"() {value = dense<[6, 2, 8]> : tensor<3xi64>} : () -> tensor<3xi64>
    %0 = "onnx.Reshape"(%x, %rows) : (tensor<6x2x4xf32>, tensor<2xi64>) -> tensor<12x4xf32>
    %1 = "onnx.Gemm"(%0, %w, %c) : (tensor<12x4xf32>, tensor<4x8xf32>, tensor<8xf32>) -> tensor<12x8xf32>
    %2 = "onnx.Reshape"(%1, %back) : (tensor<12x8xf32>, tensor<3xi64>) -> tensor<6x2x8xf32>
    return %2 : tensor<6x2x8xf32>
  }
}

// -----

// Heads are merged with the rows: what is left is a Reshape of samples. Nothing is added.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<6x5x2x2xf32> {topt.name = "x"}, %w: tensor<4x8xf32> {topt.name = "w", topt.param}) -> (tensor<6x5x8xf32> {topt.name = "y"}) {
    // CHECK-NEXT: %[[SHAPE:.*]] = "onnx.Constant"() {value = dense<[6, 5, 4]> : tensor<3xi64>}
    // CHECK-NEXT: %[[X:.*]] = "onnx.Reshape"([[ARG0:%\w+]], %[[SHAPE]]) : (tensor<6x5x2x2xf32>, tensor<3xi64>) -> tensor<6x5x4xf32>
    // CHECK-NEXT: %[[P:.*]] = "onnx.MatMul"(%[[X]], [[ARG1:%\w+]]) : (tensor<6x5x4xf32>, tensor<4x8xf32>) -> tensor<6x5x8xf32>
    // CHECK-NEXT: return %[[P]]
    %rows = "onnx.Constant"() {value = dense<[30, 4]> : tensor<2xi64>} : () -> tensor<2xi64>
    %back = "onnx.Constant"() {value = dense<[6, 5, 8]> : tensor<3xi64>} : () -> tensor<3xi64>
    %0 = "onnx.Reshape"(%x, %rows) : (tensor<6x5x2x2xf32>, tensor<2xi64>) -> tensor<30x4xf32>
    %1 = "onnx.Gemm"(%0, %w) : (tensor<30x4xf32>, tensor<4x8xf32>) -> tensor<30x8xf32>
    %2 = "onnx.Reshape"(%1, %back) : (tensor<30x8xf32>, tensor<3xi64>) -> tensor<6x5x8xf32>
    return %2 : tensor<6x5x8xf32>
  }
}

// -----

// 4 samples, rows that are read elsewhere, a sum that differs between rows, and a turned weight: they stay.
// CHECK-LABEL: func.func @main
// CHECK-NOT: onnx.MatMul
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<4x3x4xf32> {topt.name = "x"}, %y: tensor<3x4x4xf32> {topt.name = "y"}, %w: tensor<4x4xf32> {topt.name = "w", topt.param}, %c: tensor<12x1xf32> {topt.name = "c", topt.param}) -> (tensor<4x3x4xf32> {topt.name = "a"}, tensor<3x4x4xf32> {topt.name = "b"}, tensor<12x4xf32> {topt.name = "d"}, tensor<3x4x4xf32> {topt.name = "e"}, tensor<3x4x4xf32> {topt.name = "f"}) {
    %rows = "onnx.Constant"() {value = dense<[12, 4]> : tensor<2xi64>} : () -> tensor<2xi64>
    %four = "onnx.Constant"() {value = dense<[4, 3, 4]> : tensor<3xi64>} : () -> tensor<3xi64>
    %three = "onnx.Constant"() {value = dense<[3, 4, 4]> : tensor<3xi64>} : () -> tensor<3xi64>
    %0 = "onnx.Reshape"(%x, %rows) : (tensor<4x3x4xf32>, tensor<2xi64>) -> tensor<12x4xf32>
    %1 = "onnx.Reshape"(%y, %rows) : (tensor<3x4x4xf32>, tensor<2xi64>) -> tensor<12x4xf32>
    %2 = "onnx.Gemm"(%0, %w) : (tensor<12x4xf32>, tensor<4x4xf32>) -> tensor<12x4xf32>
    %3 = "onnx.Reshape"(%2, %four) : (tensor<12x4xf32>, tensor<3xi64>) -> tensor<4x3x4xf32>
    %4 = "onnx.Gemm"(%1, %w) : (tensor<12x4xf32>, tensor<4x4xf32>) -> tensor<12x4xf32>
    %5 = "onnx.Reshape"(%4, %three) : (tensor<12x4xf32>, tensor<3xi64>) -> tensor<3x4x4xf32>
    %6 = "onnx.Gemm"(%1, %w, %c) : (tensor<12x4xf32>, tensor<4x4xf32>, tensor<12x1xf32>) -> tensor<12x4xf32>
    %7 = "onnx.Reshape"(%6, %three) : (tensor<12x4xf32>, tensor<3xi64>) -> tensor<3x4x4xf32>
    %8 = "onnx.Gemm"(%1, %w) {transB = 1 : i64} : (tensor<12x4xf32>, tensor<4x4xf32>) -> tensor<12x4xf32>
    %9 = "onnx.Reshape"(%8, %three) : (tensor<12x4xf32>, tensor<3xi64>) -> tensor<3x4x4xf32>
    return %3, %5, %4, %7, %9 : tensor<4x3x4xf32>, tensor<3x4x4xf32>, tensor<12x4xf32>, tensor<3x4x4xf32>, tensor<3x4x4xf32>
  }
}
