// RUN: tensoropt-opt %s -p add-rules --split-input-file --verify-diagnostics

// A batch of 1, which an export wrote down, at a batch of 8.
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<32x8x6xf32> {topt.name = "x"}) -> (tensor<32x1x6xf32> {topt.name = "y"}) {
    %0 = "onnx.Constant"() {value = dense<[32, 1, 6]> : tensor<3xi64>} : () -> tensor<3xi64>
    // expected-error@+1 {{'onnx.Reshape' op 'Reshape' has 1536 elements, not the 192 of its shape [32, 1, 6], expected the sizes that the model was exported with, got shapes: [32, 8, 6], [3]}}
    %1 = "onnx.Reshape"(%x, %0) : (tensor<32x8x6xf32>, tensor<3xi64>) -> tensor<32x1x6xf32>
    return %1 : tensor<32x1x6xf32>
  }
}

// -----

// A state of zeros for a batch of 1, which an export wrote down.
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<5x3x2xf32> {topt.name = "x"}, %w: tensor<1x12x2xf32> {topt.name = "w", topt.param}, %r: tensor<1x12x4xf32> {topt.name = "r", topt.param}, %h: tensor<1x1x4xf32> {topt.name = "h", topt.param}) -> (tensor<5x1x3x4xf32> {topt.name = "y"}) {
    %0 = "onnx.NoValue"() : () -> none
    // expected-error@+1 {{'onnx.GRU' op 'GRU' has a state of batch size 1 and sequences of 3, expected the sizes that the model was exported with, got shapes: [5, 3, 2], [1, 12, 2], [1, 12, 4], none, none, [1, 1, 4]}}
    %1, %2 = "onnx.GRU"(%x, %w, %r, %0, %0, %h) {hidden_size = 4 : i64} : (tensor<5x3x2xf32>, tensor<1x12x2xf32>, tensor<1x12x4xf32>, none, none, tensor<1x1x4xf32>) -> (tensor<5x1x3x4xf32>, tensor<1x3x4xf32>)
    return %1 : tensor<5x1x3x4xf32>
  }
}

// -----

// Newer versions of it are refused by ONNX itself.
module attributes {topt.opset = {ai.onnx = 10 : i64}} {
  func.func @main(%x: tensor<5x3xf32> {topt.name = "x"}, %i: tensor<1x2xi64> {topt.name = "i"}, %u: tensor<1x2xf32> {topt.name = "u"}) -> (tensor<5x3xf32> {topt.name = "y"}) {
    // expected-error@+1 {{'onnx.Scatter' op 'Scatter' has axis 7, expected one of -2 to 1, got shapes: [5, 3], [1, 2], [1, 2]}}
    %0 = "onnx.Scatter"(%x, %i, %u) {axis = 7 : i64} : (tensor<5x3xf32>, tensor<1x2xi64>, tensor<1x2xf32>) -> tensor<5x3xf32>
    return %0 : tensor<5x3xf32>
  }
}

// -----

// What a branch that may never run has is its own affair.
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<8x6xf32> {topt.name = "x"}, %c: tensor<i1> {topt.name = "c"}) -> (tensor<?x6xf32> {topt.name = "y"}) {
    %0 = "onnx.Constant"() {value = dense<[1, 6]> : tensor<2xi64>} : () -> tensor<2xi64>
    %1 = "onnx.If"(%c) ({
      %2 = "onnx.Reshape"(%x, %0) : (tensor<8x6xf32>, tensor<2xi64>) -> tensor<1x6xf32>
      "onnx.Yield"(%2) : (tensor<1x6xf32>) -> ()
    }, {
      "onnx.Yield"(%x) : (tensor<8x6xf32>) -> ()
    }) {topt.regions = ["then_branch", "else_branch"]} : (tensor<i1>) -> tensor<?x6xf32>
    return %1 : tensor<?x6xf32>
  }
}
