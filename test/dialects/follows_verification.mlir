// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{'onnx.Relu' op has the wrong kind of topt.follows, expected an i64, got: "3"}}
  %0 = "onnx.Relu"(%x) {topt.follows = "3"} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// expected-error@+1 {{'builtin.module' op has a stray topt.follows, expected an operation or an argument or a result, got: the module}}
module attributes {topt.follows = 3 : i64} {
}

// -----

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{'onnx.Relu' op has a dangling topt.follows, expected a topt.id, got: 7}}
  %0 = "onnx.Relu"(%x) {topt.follows = 7 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// expected-error@+1 {{'func.func' op argument 0 has a dangling topt.follows, expected a topt.id, got: 7}}
func.func @main(%x: tensor<4xf32> {topt.follows = 7 : i64}) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

// -----

// expected-error@+1 {{'func.func' op result 0 has a dangling topt.follows, expected a topt.id, got: 7}}
func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32> {topt.follows = 7 : i64}) {
  return %x : tensor<4xf32>
}
