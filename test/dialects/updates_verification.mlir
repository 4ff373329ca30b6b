// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{'func.func' op result 0 has the wrong kind of topt.updates, expected a string, got: 3 : i64}}
func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32> {topt.updates = 3 : i64}) {
  return %x : tensor<4xf32>
}

// -----

// expected-error@+1 {{'builtin.module' op has a stray topt.updates, expected a result, got: the module}}
module attributes {topt.updates = "a"} {
}

// -----

// expected-error@+1 {{'func.func' op result 0 has a dangling topt.updates, expected the name of an argument, got: 'w'}}
func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32> {topt.updates = "w"}) {
  return %x : tensor<4xf32>
}
