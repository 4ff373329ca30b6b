// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{'onnx.Relu' op has the wrong kind of topt.chunk, expected an i64, got: "first"}}
  %0 = "onnx.Relu"(%x) {topt.chunk = "first"} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// expected-error@+1 {{'builtin.module' op has a stray topt.chunk, expected an operation, got: the module}}
module attributes {topt.chunk = 0 : i64} {
}

// -----

module attributes {topt.places = array<i64: 0, 1>} {
  func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    // expected-error@+1 {{'onnx.Relu' op has a topt.chunk that topt.places of the module lacks, expected 0 or more, below 2, got: 2 : i64}}
    %0 = "onnx.Relu"(%x) {topt.chunk = 2 : i64} : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}

// -----

// expected-error@+1 {{'builtin.module' op has the wrong kind of topt.places, expected array<i64>, got: 1 : i64}}
module attributes {topt.places = 1 : i64} {
}

// -----

// expected-error@+1 {{'builtin.module' op has the wrong kind of topt.schedule, expected a list of strings, got: "F0"}}
module attributes {topt.schedule = "F0"} {
}

// -----

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{'onnx.Relu' op has the wrong kind of topt.stages, expected no value, got: 2 : i64}}
  %0 = "onnx.Relu"(%x) {topt.stages = 2 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
