// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{'onnx.Relu' op has the wrong kind of topt.gradients, expected array<i64>, got: [3]}}
  %0 = "onnx.Relu"(%x) {topt.gradients = [3]} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{'onnx.Relu' op has the wrong kind of topt.gradients, expected array<i64>, got: array<i32: 0, 0, 0, 0>}}
  %0 = "onnx.Relu"(%x) {topt.gradients = array<i32: 0, 0, 0, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// expected-error@+1 {{'builtin.module' op has a stray topt.gradients, expected an operation, got: the module}}
module attributes {topt.gradients = array<i64: 0, 0, 0, 0>} {
}

// -----

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{'onnx.Relu' op has a wrong topt.gradients, expected a multiple of 4 numbers, got: 3}}
  %0 = "onnx.Relu"(%x) {topt.gradients = array<i64: 1, 0, 2>} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @main(%x: tensor<4xf32> {topt.id = 1 : i64}) -> tensor<4xf32> {
  // expected-error@+1 {{'onnx.Relu' op has a dangling topt.gradients, expected a topt.id, got: 7}}
  %0 = "onnx.Relu"(%x) {topt.gradients = array<i64: 7, 0, 1, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @main(%x: tensor<4xf32> {topt.id = 1 : i64}) -> tensor<4xf32> {
  // expected-error@+1 {{'onnx.Relu' op has a dangling topt.gradients, expected a topt.id, got: 7}}
  %0 = "onnx.Relu"(%x) {topt.gradients = array<i64: 1, 0, 7, 0>} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @main(%x: tensor<4xf32> {topt.id = 1 : i64}) -> tensor<4xf32> {
  // expected-error@+1 {{'onnx.Relu' op has a dangling topt.gradients, expected one of the 1 results of 1, got: 2}}
  %0 = "onnx.Relu"(%x) {topt.gradients = array<i64: 1, 0, 1, 2>} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
