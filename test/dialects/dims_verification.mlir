// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{'func.func' op argument 0 has the wrong kind of topt.dims, expected a list of strings, got: "n"}}
func.func @main(%x: tensor<4xf32> {topt.dims = "n"}) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

// -----

// expected-error@+1 {{'func.func' op argument 0 has the wrong kind of topt.dims, expected a list of strings, got: ["n", 3]}}
func.func @main(%x: tensor<4xf32> {topt.dims = ["n", 3]}) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

// -----

// expected-error@+1 {{'builtin.module' op has a stray topt.dims, expected an argument or a result, got: the module}}
module attributes {topt.dims = ["n"]} {
}
