// RUN: tensoropt-opt %s -p mark-order --split-input-file | filecheck %s

// Depth first, both large tensors would be alive at once: the last product reads %2 first.
// CHECK: module attributes {topt.opset = {ai.onnx = 20 : i64}, topt.ordered}
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<1x64xf32> {topt.name = "x"}, %w: tensor<64x1xf32> {topt.name = "w", topt.param}) -> (tensor<64x1xf32> {topt.name = "y"}) {
    %0 = "onnx.Mul"(%x, %w) : (tensor<1x64xf32>, tensor<64x1xf32>) -> tensor<64x64xf32>
    %1 = "onnx.MatMul"(%0, %w) : (tensor<64x64xf32>, tensor<64x1xf32>) -> tensor<64x1xf32>
    %2 = "onnx.Add"(%x, %w) : (tensor<1x64xf32>, tensor<64x1xf32>) -> tensor<64x64xf32>
    %3 = "onnx.MatMul"(%2, %1) : (tensor<64x64xf32>, tensor<64x1xf32>) -> tensor<64x1xf32>
    return %3 : tensor<64x1xf32>
  }
}

// -----

// In a chain there is no other order; a mark that was there goes.
// CHECK: module attributes {topt.opset = {ai.onnx = 20 : i64}} {
module attributes {topt.opset = {ai.onnx = 20 : i64}, topt.ordered} {
  func.func @main(%x: tensor<4xf32> {topt.name = "x"}) -> (tensor<4xf32> {topt.name = "y"}) {
    %0 = "onnx.Relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
    %1 = "onnx.Neg"(%0) : (tensor<4xf32>) -> tensor<4xf32>
    return %1 : tensor<4xf32>
  }
}

// -----

// As the first, but for a string.
// CHECK: module attributes {topt.opset = {ai.onnx = 20 : i64}} {
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<1x64xf32> {topt.name = "x"}, %w: tensor<64x1xf32> {topt.name = "w", topt.param}, %s: tensor<1x!onnx.String> {topt.name = "s"}) -> (tensor<64x1xf32> {topt.name = "y"}, tensor<1x!onnx.String> {topt.name = "t"}) {
    %0 = "onnx.Mul"(%x, %w) : (tensor<1x64xf32>, tensor<64x1xf32>) -> tensor<64x64xf32>
    %1 = "onnx.MatMul"(%0, %w) : (tensor<64x64xf32>, tensor<64x1xf32>) -> tensor<64x1xf32>
    %2 = "onnx.Add"(%x, %w) : (tensor<1x64xf32>, tensor<64x1xf32>) -> tensor<64x64xf32>
    %3 = "onnx.MatMul"(%2, %1) : (tensor<64x64xf32>, tensor<64x1xf32>) -> tensor<64x1xf32>
    return %3, %s : tensor<64x1xf32>, tensor<1x!onnx.String>
  }
}

// -----

// A chain too, but ONNX Runtime adds nodes around the convolutions of a training step.
// CHECK: module attributes {topt.opset = {ai.onnx = 20 : i64}, topt.ordered} {
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<1x2x4x4xf32> {topt.name = "x"}, %w: tensor<2x2x1x1xf32> {topt.name = "w", topt.param}) -> (tensor<1x2x4x4xf32> {topt.name = "y"}) {
    %0 = "onnx.Conv"(%x, %w) {topt.phase = "forward"} : (tensor<1x2x4x4xf32>, tensor<2x2x1x1xf32>) -> tensor<1x2x4x4xf32>
    %1 = "onnx.Neg"(%0) {topt.phase = "backward"} : (tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
    return %1 : tensor<1x2x4x4xf32>
  }
}
