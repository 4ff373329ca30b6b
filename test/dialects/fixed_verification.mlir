// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{'func.func' op argument 0 has the wrong kind of topt.fixed, expected no value, got: "w"}}
func.func @main(%x: tensor<4xf32> {topt.fixed = "w"}) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

// -----

// expected-error@+1 {{'builtin.module' op has a stray topt.fixed, expected an argument, got: the module}}
module attributes {topt.fixed} {
}
