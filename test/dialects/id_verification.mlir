// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{'onnx.Relu' op has the wrong kind of topt.id, expected an i64, got: "3"}}
  %0 = "onnx.Relu"(%x) {topt.id = "3"} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{'onnx.Relu' op has the wrong kind of topt.id, expected an i64, got: 3 : i32}}
  %0 = "onnx.Relu"(%x) {topt.id = 3 : i32} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// expected-error@+1 {{'builtin.module' op has a stray topt.id, expected an operation or an argument, got: the module}}
module attributes {topt.id = 3 : i64} {
}

// -----

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %1 = "onnx.Neg"(%x) {topt.id = 7 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  // expected-error@+1 {{'onnx.Relu' op has a duplicate topt.id, expected a new number, got: 7}}
  %0 = "onnx.Relu"(%x) {topt.id = 7 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// An argument and an operation have different numbers too.
func.func @main(%x: tensor<4xf32> {topt.id = 7 : i64}) -> tensor<4xf32> {
  // expected-error@+1 {{'onnx.Relu' op has a duplicate topt.id, expected a new number, got: 7}}
  %0 = "onnx.Relu"(%x) {topt.id = 7 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
