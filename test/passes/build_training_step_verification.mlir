// RUN: tensoropt-opt %s -p build-training-step{loss=output:l} --split-input-file --verify-diagnostics

// expected-error@unknown {{training needs a model of opset 20 or later, got: 17; onnx.version_converter converts it}}
module attributes {topt.opset = {ai.onnx = 17 : i64}} {
  func.func @main(%x: tensor<4xf32> {topt.name = "x"}) -> (tensor<4xf32> {topt.name = "l"}) {
    return %x : tensor<4xf32>
  }
}

// -----

// expected-error@unknown {{training needs static shapes, got: tensor<?xf32> of node 'r'; expected --dim NAME=SIZE for every symbolic dimension}}
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<?xf32> {topt.name = "x"}) -> (tensor<?xf32> {topt.name = "l"}) {
    %0 = "onnx.Relu"(%x) : (tensor<?xf32>) -> tensor<?xf32> loc("r")
    return %0 : tensor<?xf32>
  }
}

// -----

// expected-error@unknown {{no output 'l', did you mean 'll'?; the model has ll}}
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%w: tensor<f32> {topt.name = "w", topt.param}) -> (tensor<f32> {topt.name = "ll"}) {
    return %w : tensor<f32>
  }
}

// -----

// expected-error@unknown {{one number, got: tensor<4xf32>}}
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%w: tensor<4xf32> {topt.name = "w", topt.param}) -> (tensor<4xf32> {topt.name = "l"}) {
    return %w : tensor<4xf32>
  }
}

// -----

// expected-error@unknown {{the loss depends on no parameter, expected one to train}}
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<f32> {topt.name = "x"}, %w: tensor<f32> {topt.name = "w", topt.param}) -> (tensor<f32> {topt.name = "l"}, tensor<f32> {topt.name = "m"}) {
    %0 = "onnx.Mul"(%x, %x) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    return %0, %w : tensor<f32>, tensor<f32>
  }
}

// -----

// expected-error@unknown {{node 'draw' (Bernoulli) is between a parameter and the loss but has no gradient}}
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%w: tensor<f32> {topt.name = "w", topt.param}) -> (tensor<f32> {topt.name = "l"}) {
    %0 = "onnx.Bernoulli"(%w) : (tensor<f32>) -> tensor<f32> loc("draw")
    return %0 : tensor<f32>
  }
}

// -----

// expected-error@unknown {{function @main: expected topt.name on every argument}}
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%w: tensor<f32> {topt.param}) -> (tensor<f32> {topt.name = "l"}) {
    return %w : tensor<f32>
  }
}
