// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{'onnx.Relu' op has the wrong kind of topt.norm, expected no value, got: "w"}}
  %0 = "onnx.Relu"(%x) {topt.norm = "w"} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// expected-error@+1 {{'builtin.module' op has a stray topt.norm, expected an operation, got: the module}}
module attributes {topt.norm} {
}
