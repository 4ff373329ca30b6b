// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{'onnx.Relu' op has the wrong kind of topt.gradient_of, expected a string, got: 3 : i64}}
  %0 = "onnx.Relu"(%x) {topt.gradient_of = 3 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// expected-error@+1 {{'builtin.module' op has a stray topt.gradient_of, expected an operation, got: the module}}
module attributes {topt.gradient_of = "a"} {
}

// -----

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{'onnx.Relu' op has a dangling topt.gradient_of, expected the name of an argument, got: 'w'}}
  %0 = "onnx.Relu"(%x) {topt.gradient_of = "w"} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
