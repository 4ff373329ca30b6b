// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{'builtin.module' op has the wrong kind of topt.lost, expected a list of strings, got: "n"}}
module attributes {topt.lost = "n"} {
}

// -----

// expected-error@+1 {{'func.func' op argument 0 has a stray topt.lost, expected the module, got: an argument}}
func.func @main(%x: tensor<4xf32> {topt.lost = ["n"]}) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
