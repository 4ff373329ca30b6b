// RUN: tensoropt-opt %s -p add-rules --split-input-file --verify-diagnostics

// A batch of 1, which an export wrote down, at a batch of 8.
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<32x8x6xf32> {topt.name = "x"}) -> (tensor<32x1x6xf32> {topt.name = "y"}) {
    %0 = "onnx.Constant"() {value = dense<[32, 1, 6]> : tensor<3xi64>} : () -> tensor<3xi64>
    // expected-error@+1 {{'onnx.Reshape' op 'Reshape' has not as many elements as its shape [32, 1, 6], expected the sizes that the model was exported with, got shapes: [32, 8, 6], [3]}}
    %1 = "onnx.Reshape"(%x, %0) : (tensor<32x8x6xf32>, tensor<3xi64>) -> tensor<32x1x6xf32>
    return %1 : tensor<32x1x6xf32>
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
