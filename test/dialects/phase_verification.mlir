// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{'onnx.Relu' op has the wrong kind of topt.phase, expected a string, got: 3 : i64}}
  %0 = "onnx.Relu"(%x) {topt.phase = 3 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// expected-error@+1 {{'builtin.module' op has a stray topt.phase, expected an operation, got: the module}}
module attributes {topt.phase = "a"} {
}

// -----

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{'onnx.Relu' op has an unknown topt.phase, expected one of forward, recompute, backward, update, got: "sideways"}}
  %0 = "onnx.Relu"(%x) {topt.phase = "sideways"} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
