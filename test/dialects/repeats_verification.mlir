// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{'onnx.Relu' op has the wrong kind of topt.repeats, expected an i64, got: "3"}}
  %0 = "onnx.Relu"(%x) {topt.repeats = "3"} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// expected-error@+1 {{'builtin.module' op has a stray topt.repeats, expected an operation, got: the module}}
module attributes {topt.repeats = 3 : i64} {
}

// -----

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{'onnx.Relu' op has a dangling topt.repeats, expected a topt.id, got: 7}}
  %0 = "onnx.Relu"(%x) {topt.repeats = 7 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
