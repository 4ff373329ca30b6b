// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{'onnx.Relu' op has the wrong kind of topt.regions, expected a list of strings, got: "n"}}
  %0 = "onnx.Relu"(%x) {topt.regions = "n"} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{'onnx.Relu' op has the wrong kind of topt.regions, expected a list of strings, got: [3]}}
  %0 = "onnx.Relu"(%x) {topt.regions = [3]} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// expected-error@+1 {{'builtin.module' op has a stray topt.regions, expected an operation, got: the module}}
module attributes {topt.regions = ["n"]} {
}
