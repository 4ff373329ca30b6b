// RUN: tensoropt-opt %s -p schedule --split-input-file | filecheck %s

// Each of the large tensors becomes a small one before the next is made. What is folded at load
// stays ahead of what is moved.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<1x64xf32> {topt.name = "x"}, %w: tensor<64x1xf32> {topt.name = "w", topt.param}) -> (tensor<64x1xf32> {topt.name = "y"}) {
    // CHECK-NEXT: %[[X:.*]] = "onnx.Relu"
    %0 = "onnx.Relu"(%x) : (tensor<1x64xf32>) -> tensor<1x64xf32>
    // CHECK-NEXT: %[[A:.*]] = "onnx.Mul"(%[[X]],
    // CHECK-NEXT: %[[W:.*]] = "onnx.Neg"
    // CHECK-NEXT: %[[C:.*]] = "onnx.MatMul"(%[[A]], %[[W]])
    // CHECK-NEXT: %[[B:.*]] = "onnx.Add"(%[[X]],
    // CHECK-NEXT: %[[D:.*]] = "onnx.MatMul"(%[[B]],
    // CHECK-NEXT: %[[E:.*]] = "onnx.Sub"(%[[C]], %[[D]])
    // CHECK-NEXT: return %[[E]]
    %1 = "onnx.Mul"(%0, %w) : (tensor<1x64xf32>, tensor<64x1xf32>) -> tensor<64x64xf32>
    %2 = "onnx.Add"(%0, %w) : (tensor<1x64xf32>, tensor<64x1xf32>) -> tensor<64x64xf32>
    %3 = "onnx.Neg"(%w) : (tensor<64x1xf32>) -> tensor<64x1xf32>
    %4 = "onnx.MatMul"(%1, %3) : (tensor<64x64xf32>, tensor<64x1xf32>) -> tensor<64x1xf32>
    %5 = "onnx.MatMul"(%2, %w) : (tensor<64x64xf32>, tensor<64x1xf32>) -> tensor<64x1xf32>
    %6 = "onnx.Sub"(%4, %5) : (tensor<64x1xf32>, tensor<64x1xf32>) -> tensor<64x1xf32>
    return %6 : tensor<64x1xf32>
  }
}

// -----

// Where no order is lower, the one given stays.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<64xf32> {topt.name = "x"}) -> (tensor<64xf32> {topt.name = "y"}) {
    // CHECK-NEXT: "onnx.Relu"
    // CHECK-NEXT: "onnx.Neg"
    // CHECK-NEXT: "onnx.Abs"
    // CHECK-NEXT: "onnx.Add"
    // CHECK-NEXT: return
    %0 = "onnx.Relu"(%x) : (tensor<64xf32>) -> tensor<64xf32>
    %1 = "onnx.Neg"(%0) : (tensor<64xf32>) -> tensor<64xf32>
    %2 = "onnx.Abs"(%0) : (tensor<64xf32>) -> tensor<64xf32>
    %3 = "onnx.Add"(%2, %1) : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    return %3 : tensor<64xf32>
  }
}

// -----

// What draws numbers does so in the order given: here that keeps both large tensors alive.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%w: tensor<64x1xf32> {topt.name = "w", topt.param}) -> (tensor<64x1xf32> {topt.name = "y"}) {
    // CHECK-NEXT: "onnx.RandomNormal"
    // CHECK-NEXT: "onnx.RandomUniform"
    // CHECK-NEXT: "onnx.MatMul"
    // CHECK-NEXT: "onnx.MatMul"
    %0 = "onnx.RandomNormal"() {shape = array<i64: 64, 64>} : () -> tensor<64x64xf32>
    %1 = "onnx.RandomUniform"() {shape = array<i64: 64, 64>} : () -> tensor<64x64xf32>
    %2 = "onnx.MatMul"(%1, %w) : (tensor<64x64xf32>, tensor<64x1xf32>) -> tensor<64x1xf32>
    %3 = "onnx.MatMul"(%0, %2) : (tensor<64x64xf32>, tensor<64x1xf32>) -> tensor<64x1xf32>
    return %3 : tensor<64x1xf32>
  }
}
