// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{'builtin.module' op has the wrong kind of topt.annotated, expected a list of strings, got: "2x2"}}
module attributes {topt.annotated = "2x2"} {
}

// -----

// expected-error@+1 {{'func.func' op argument 0 has a stray topt.annotated, expected the module, got: an argument}}
func.func @main(%x: tensor<4xf32> {topt.annotated = ["2x2"]}) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
