// RUN: tensoropt-opt %s -p search-strategies{mesh=2} --split-input-file --verify-diagnostics

// expected-error@unknown {{the module has no attribute topt.opset, expected one version per domain (in pass 'search-strategies')}}
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

// -----

// expected-error@unknown {{the module has no function @main, expected one imported from an ONNX model}}
module attributes {topt.model = "m.onnx", topt.opset = {ai.onnx = 20 : i64}} {
}

// -----

// expected-error@unknown {{function @main: expected one block that ends with a return (in pass 'search-strategies')}}
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<4xf32> {topt.name = "x"}) -> (tensor<4xf32> {topt.name = "y"}) {
    %0 = "onnx.Relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  }
}

// -----

// expected-error@unknown {{function @main: expected one block that ends with a return (in pass 'search-strategies')}}
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func private @main(tensor<4xf32> {topt.name = "x"}) -> (tensor<4xf32> {topt.name = "y"})
}

// -----

// expected-error@unknown {{function @main: expected topt.name on every argument, run import first (in pass 'search-strategies')}}
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32> {topt.name = "y"}) {
    return %x : tensor<4xf32>
  }
}

// -----

// expected-error@unknown {{function @main: expected topt.name on every result, run import first (in pass 'search-strategies')}}
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<4xf32> {topt.name = "x"}) -> tensor<4xf32> {
    return %x : tensor<4xf32>
  }
}

// -----

module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<4xf32> {topt.name = "x"}) -> (tensor<4xf32> {topt.name = "y"}) {
    // expected-error@+1 {{'onnx.Relu' op has no topt.rule, run add-rules first}}
    %0 = "onnx.Relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
