// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{'builtin.module' op has the wrong kind of topt.missing, expected a list of strings, got: "w.bin"}}
module attributes {topt.missing = "w.bin"} {
}

// -----

// expected-error@+1 {{'func.func' op argument 0 has a stray topt.missing, expected the module, got: an argument}}
func.func @main(%x: tensor<4xf32> {topt.missing = ["w.bin"]}) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
