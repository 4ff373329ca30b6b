// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{'builtin.module' op has the wrong kind of topt.untied, expected no value, got: true}}
module attributes {topt.untied = true} {
}

// -----

// expected-error@+1 {{'func.func' op argument 0 has a stray topt.untied, expected the module, got: an argument}}
func.func @main(%x: tensor<4xf32> {topt.untied}) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
