// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{'builtin.module' op has an unknown attribute 'topt.opsets', did you mean 'topt.opset'?}}
module attributes {topt.opsets = {ai.onnx = 20 : i64}} {
}

// -----

// expected-error@+1 {{'func.func' op argument 0 has an unknown attribute 'topt.nam', did you mean 'topt.name'?}}
func.func @main(%x: tensor<4xf32> {topt.nam = "x"}) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

// -----

// expected-error@+1 {{'func.func' op result 0 has an unknown attribute 'topt.layouts', did you mean 'topt.layout'?}}
func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32> {topt.layouts = 3 : i64}) {
  return %x : tensor<4xf32>
}

// -----

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{'onnx.Relu' op has an unknown attribute 'topt.zzzz'}}
  %0 = "onnx.Relu"(%x) {topt.zzzz} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// In a region too.
func.func @main(%c: tensor<i1>, %x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "onnx.If"(%c) ({
    // expected-error@+1 {{'onnx.Relu' op has an unknown attribute 'topt.phases', did you mean 'topt.phase'?}}
    %1 = "onnx.Relu"(%x) {topt.phases = "forward"} : (tensor<4xf32>) -> tensor<4xf32>
    "onnx.Yield"(%1) : (tensor<4xf32>) -> ()
  }) {topt.regions = ["then_branch"]} : (tensor<i1>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
