// RUN: tensoropt-opt %s -p search-strategies{mesh=2} --split-input-file --verify-diagnostics

// expected-error@unknown {{the module has no attribute topt.opset, expected one version per domain (in pass 'search-strategies')}}
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

// -----

// expected-error@unknown {{the module has no function @main, expected one imported from an ONNX model}}
module attributes {topt.model = "m.onnx", topt.opset = {ai.onnx = 20 : i64}} {
}
