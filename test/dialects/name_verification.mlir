// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{'func.func' op argument 0 has the wrong kind of topt.name, expected a string, got: 3 : i64}}
func.func @main(%x: tensor<4xf32> {topt.name = 3 : i64}) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

// -----

// expected-error@+1 {{'builtin.module' op has a stray topt.name, expected an argument or a result, got: the module}}
module attributes {topt.name = "a"} {
}
