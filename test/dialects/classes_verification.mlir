// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{'func.func' op argument 0 has the wrong kind of topt.classes, expected an i64, got: "3"}}
func.func @main(%x: tensor<4xf32> {topt.classes = "3"}) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

// -----

// expected-error@+1 {{'func.func' op argument 0 has the wrong kind of topt.classes, expected an i64, got: 3 : i32}}
func.func @main(%x: tensor<4xf32> {topt.classes = 3 : i32}) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

// -----

// expected-error@+1 {{'builtin.module' op has a stray topt.classes, expected an argument, got: the module}}
module attributes {topt.classes = 3 : i64} {
}
