// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{'builtin.module' op has the wrong kind of topt.ir_version, expected an i64, got: "3"}}
module attributes {topt.ir_version = "3"} {
}

// -----

// expected-error@+1 {{'builtin.module' op has the wrong kind of topt.ir_version, expected an i64, got: 3 : i32}}
module attributes {topt.ir_version = 3 : i32} {
}

// -----

// expected-error@+1 {{'func.func' op argument 0 has a stray topt.ir_version, expected the module, got: an argument}}
func.func @main(%x: tensor<4xf32> {topt.ir_version = 3 : i64}) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
