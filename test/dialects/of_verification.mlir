// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{'func.func' op argument 0 has the wrong kind of topt.of, expected a string, got: 3 : i64}}
func.func @main(%x: tensor<4xf32> {topt.of = 3 : i64}) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

// -----

// expected-error@+1 {{'builtin.module' op has a stray topt.of, expected an argument, got: the module}}
module attributes {topt.of = "a"} {
}

// -----

// expected-error@+1 {{'func.func' op argument 0 has a dangling topt.of, expected the name of an argument, got: 'w'}}
func.func @main(%x: tensor<4xf32> {topt.of = "w"}) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
