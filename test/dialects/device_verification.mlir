// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{'builtin.module' op has the wrong kind of topt.device, expected a string, got: 3 : i64}}
module attributes {topt.device = 3 : i64} {
}

// -----

// expected-error@+1 {{'func.func' op argument 0 has a stray topt.device, expected the module, got: an argument}}
func.func @main(%x: tensor<4xf32> {topt.device = "a"}) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
