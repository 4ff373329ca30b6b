// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{'builtin.module' op has the wrong kind of topt.tied, expected a list of strings per name, got: "n"}}
module attributes {topt.tied = "n"} {
}

// -----

// expected-error@+1 {{'func.func' op argument 0 has a stray topt.tied, expected the module, got: an argument}}
func.func @main(%x: tensor<4xf32> {topt.tied = {w = ["n"]}}) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
