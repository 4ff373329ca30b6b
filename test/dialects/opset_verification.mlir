// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{'builtin.module' op has the wrong kind of topt.opset, expected an i64 per domain, got: 20 : i64}}
module attributes {topt.opset = 20 : i64} {
}

// -----

// expected-error@+1 {{'builtin.module' op has the wrong kind of topt.opset, expected an i64 per domain, got: {ai.onnx = "20"}}}
module attributes {topt.opset = {ai.onnx = "20"}} {
}

// -----

// expected-error@+1 {{'func.func' op argument 0 has a stray topt.opset, expected the module, got: an argument}}
func.func @main(%x: tensor<4xf32> {topt.opset = {ai.onnx = 20 : i64}}) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
