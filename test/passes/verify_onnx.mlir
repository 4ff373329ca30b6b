// RUN: tensoropt-opt %s -p verify-onnx --split-input-file --verify-diagnostics

// Every kind of attribute, omitted operands, regions and domains: nothing to say.
module attributes {topt.opset = {ai.onnx = 20 : i64, ai.onnx.ml = 3 : i64, com.microsoft = 1 : i64}} {
  func.func @main(%x: tensor<4x4xf32> {topt.name = "x"}, %c: tensor<i1> {topt.name = "c"}) -> (tensor<4x4xf32> {topt.name = "y"}) {
    %n = "onnx.NoValue"() : () -> none
    %0 = "onnx.Clip"(%x, %n, %n) : (tensor<4x4xf32>, none, none) -> tensor<4x4xf32>
    %1 = "onnx.Gemm"(%0, %x) {alpha = 2.0 : f32, transB = 1 : i64} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %2 = "onnx.Transpose"(%1) {perm = array<i64: 1, 0>} : (tensor<4x4xf32>) -> tensor<4x4xf32>
    %3 = "onnx.Einsum"(%2) {equation = "ij->ji"} : (tensor<4x4xf32>) -> tensor<4x4xf32>
    %4 = "onnx.com.microsoft.FusedMatMul"(%3, %x) {transA = 1 : i64} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %s = "onnx.ai.onnx.ml.Scaler"(%4) {offset = array<f32: 0.5>, scale = array<f32: 2.0>} : (tensor<4x4xf32>) -> tensor<4x4xf32>
    %e = "onnx.ai.onnx.ml.LabelEncoder"(%s) {keys_floats = array<f32: 0.5>, values_strings = ["a"]} : (tensor<4x4xf32>) -> tensor<4x4x!onnx.String>
    %z = "onnx.Constant"() {value = dense<[1, 2]> : tensor<2xi64>} : () -> tensor<2xi64>
    %f = "onnx.ConstantOfShape"(%z) {value = dense<1.0> : tensor<1xf32>} : (tensor<2xi64>) -> tensor<1x2xf32>
    %y = "onnx.If"(%c) ({
      "onnx.Yield"(%4) : (tensor<4x4xf32>) -> ()
    }, {
      "onnx.Yield"(%x) : (tensor<4x4xf32>) -> ()
    }) {topt.regions = ["else_branch", "then_branch"]} : (tensor<i1>) -> tensor<4x4xf32>
    return %y : tensor<4x4xf32>
  }
}

// -----

module attributes {topt.opset = {ai.onnx = 20 : i64, ai.onnx.ml = 3 : i64}} {
  func.func @main(%x: tensor<4xf32> {topt.name = "x"}, %c: tensor<i1> {topt.name = "c"}) -> (tensor<4xf32> {topt.name = "y"}) {
    // expected-error@+1 {{'onnx.Rellu' op is unknown in version 20 of 'ai.onnx', did you mean 'Relu'?}}
    %0 = "onnx.Rellu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}

// -----

module attributes {topt.opset = {ai.onnx = 20 : i64, ai.onnx.ml = 3 : i64}} {
  func.func @main(%x: tensor<4xf32> {topt.name = "x"}, %c: tensor<i1> {topt.name = "c"}) -> (tensor<4xf32> {topt.name = "y"}) {
    // expected-error@+1 {{'onnx.com.microsoft.Gelu' op is of a domain without a version in topt.opset, expected one of: ai.onnx, ai.onnx.ml}}
    %0 = "onnx.com.microsoft.Gelu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}

// -----

module attributes {topt.opset = {ai.onnx = 20 : i64, ai.onnx.ml = 3 : i64}} {
  func.func @main(%x: tensor<4xf32> {topt.name = "x"}, %c: tensor<i1> {topt.name = "c"}) -> (tensor<4xf32> {topt.name = "y"}) {
    // expected-error@+1 {{'onnx.Add' op has a wrong number of operands, expected 2, got: 1}}
    %0 = "onnx.Add"(%x) : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}

// -----

module attributes {topt.opset = {ai.onnx = 20 : i64, ai.onnx.ml = 3 : i64}} {
  func.func @main(%x: tensor<4xf32> {topt.name = "x"}, %c: tensor<i1> {topt.name = "c"}) -> (tensor<4xf32> {topt.name = "y"}) {
    // expected-error@+1 {{'onnx.Clip' op has a wrong number of operands, expected 1 to 3, got: 4}}
    %0 = "onnx.Clip"(%x, %x, %x, %x) : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}

// -----

module attributes {topt.opset = {ai.onnx = 20 : i64, ai.onnx.ml = 3 : i64}} {
  func.func @main(%x: tensor<4xf32> {topt.name = "x"}, %c: tensor<i1> {topt.name = "c"}) -> (tensor<4xf32> {topt.name = "y"}) {
    // expected-error@+1 {{'onnx.Concat' op has a wrong number of operands, expected at least 1, got: 0}}
    %0 = "onnx.Concat"() {axis = 0 : i64} : () -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}

// -----

module attributes {topt.opset = {ai.onnx = 20 : i64, ai.onnx.ml = 3 : i64}} {
  func.func @main(%x: tensor<4xf32> {topt.name = "x"}, %c: tensor<i1> {topt.name = "c"}) -> (tensor<4xf32> {topt.name = "y"}) {
    // expected-error@+1 {{'onnx.Relu' op has a wrong number of results, expected 1, got: 2}}
    %0, %1 = "onnx.Relu"(%x) : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
    return %0 : tensor<4xf32>
  }
}

// -----

module attributes {topt.opset = {ai.onnx = 20 : i64, ai.onnx.ml = 3 : i64}} {
  func.func @main(%x: tensor<4xf32> {topt.name = "x"}, %c: tensor<i1> {topt.name = "c"}) -> (tensor<4xf32> {topt.name = "y"}) {
    // expected-error@+1 {{'onnx.Softmax' op has an unknown attribute 'axes', did you mean 'axis'?}}
    %0 = "onnx.Softmax"(%x) {axes = 0 : i64} : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}

// -----

module attributes {topt.opset = {ai.onnx = 20 : i64, ai.onnx.ml = 3 : i64}} {
  func.func @main(%x: tensor<4xf32> {topt.name = "x"}, %c: tensor<i1> {topt.name = "c"}) -> (tensor<4xf32> {topt.name = "y"}) {
    // expected-error@+1 {{'onnx.Softmax' op has a wrong kind of attribute 'axis', expected INT, got: FLOAT}}
    %0 = "onnx.Softmax"(%x) {axis = 0.0 : f32} : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}

// -----

module attributes {topt.opset = {ai.onnx = 20 : i64, ai.onnx.ml = 3 : i64}} {
  func.func @main(%x: tensor<4xf32> {topt.name = "x"}, %c: tensor<i1> {topt.name = "c"}) -> (tensor<4xf32> {topt.name = "y"}) {
    // expected-error@+1 {{'onnx.Transpose' op has a wrong kind of attribute 'perm', expected INTS, got: STRINGS}}
    %0 = "onnx.Transpose"(%x) {perm = ["a"]} : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}

// -----

module attributes {topt.opset = {ai.onnx = 20 : i64, ai.onnx.ml = 3 : i64}} {
  func.func @main(%x: tensor<4xf32> {topt.name = "x"}, %c: tensor<i1> {topt.name = "c"}) -> (tensor<4xf32> {topt.name = "y"}) {
    // expected-error@+1 {{'onnx.Concat' op has no attribute 'axis', which ONNX requires}}
    %0 = "onnx.Concat"(%x) : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}

// -----

module attributes {topt.opset = {ai.onnx = 20 : i64, ai.onnx.ml = 3 : i64}} {
  func.func @main(%x: tensor<4xf32> {topt.name = "x"}, %c: tensor<i1> {topt.name = "c"}) -> (tensor<4xf32> {topt.name = "y"}) {
    // expected-error@+1 {{'onnx.Constant' op has no attribute 'value', expected a dense literal}}
    %0 = "onnx.Constant"() : () -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}

// -----

module attributes {topt.opset = {ai.onnx = 20 : i64, ai.onnx.ml = 3 : i64}} {
  func.func @main(%x: tensor<4xf32> {topt.name = "x"}, %c: tensor<i1> {topt.name = "c"}) -> (tensor<4xf32> {topt.name = "y"}) {
    // expected-error@+1 {{'onnx.If' op has a wrong topt.regions, expected 2 names, got: 1}}
    %0 = "onnx.If"(%c) ({
      "onnx.Yield"(%x) : (tensor<4xf32>) -> ()
    }, {
      "onnx.Yield"(%x) : (tensor<4xf32>) -> ()
    }) {topt.regions = ["else_branch"]} : (tensor<i1>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}

// -----

module attributes {topt.opset = {ai.onnx = 20 : i64, ai.onnx.ml = 3 : i64}} {
  func.func @main(%x: tensor<4xf32> {topt.name = "x"}, %c: tensor<i1> {topt.name = "c"}) -> (tensor<4xf32> {topt.name = "y"}) {
    // expected-error@+1 {{'onnx.If' op has no attribute 'then_branch', which ONNX requires}}
    %0 = "onnx.If"(%c) ({
      "onnx.Yield"(%x) : (tensor<4xf32>) -> ()
    }) {topt.regions = ["else_branch"]} : (tensor<i1>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
