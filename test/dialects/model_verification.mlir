// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{'builtin.module' op has the wrong kind of topt.model, expected a string, got: 3 : i64}}
module attributes {topt.model = 3 : i64} {
}

// -----

// expected-error@+1 {{'func.func' op argument 0 has a stray topt.model, expected the module, got: an argument}}
func.func @main(%x: tensor<4xf32> {topt.model = "a"}) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
