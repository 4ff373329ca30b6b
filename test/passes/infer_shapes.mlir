// RUN: tensoropt-opt %s -p infer-shapes --split-input-file | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK-SAME: -> (tensor<4x8xf32>
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<4x32xf32> {topt.name = "x"}, %w: tensor<32x8xf32> {topt.name = "w", topt.param}) -> (tensor<*xf32> {topt.name = "y"}) {
    // CHECK-NEXT: "onnx.MatMul"([[ARG0:%\w+]], [[ARG1:%\w+]]) : (tensor<4x32xf32>, tensor<32x8xf32>) -> tensor<4x8xf32>
    %0 = "onnx.MatMul"(%x, %w) : (tensor<4x32xf32>, tensor<32x8xf32>) -> tensor<*xf32>
    // CHECK-NEXT: "onnx.Relu"([[V0:%\w+]]) : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %1 = "onnx.Relu"(%0) : (tensor<*xf32>) -> tensor<*xf32>
    return %1 : tensor<*xf32>
  }
}

// -----

// What is known stays known: inference alone cannot tell how many elements are not zero.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<4xf32> {topt.name = "x"}) -> (tensor<1x3xi64> {topt.name = "y"}) {
    // CHECK-NEXT: "onnx.NonZero"([[ARG0:%\w+]]) : (tensor<4xf32>) -> tensor<1x3xi64>
    %0 = "onnx.NonZero"(%x) : (tensor<4xf32>) -> tensor<1x3xi64>
    // CHECK-NEXT: "onnx.Neg"([[V0:%\w+]]) : (tensor<1x3xi64>) -> tensor<1x?xi64>
    %1 = "onnx.Neg"(%0) : (tensor<1x3xi64>) -> tensor<?x?xi64>
    return %0 : tensor<1x3xi64>
  }
}

// -----

// Regions, and operators of ONNX Runtime's own domain.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64, com.microsoft = 1 : i64}} {
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x"}, %c: tensor<i1> {topt.name = "c"}) -> (tensor<*xf32> {topt.name = "y"}) {
    // CHECK: "onnx.com.microsoft.Gelu"([[ARG0:%\w+]]) : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %0 = "onnx.com.microsoft.Gelu"(%x) : (tensor<4x8xf32>) -> tensor<*xf32>
    // CHECK: "onnx.If"([[ARG1:%\w+]]) ({
    %1 = "onnx.If"(%c) ({
      // CHECK-NEXT: "onnx.Neg"([[V0:%\w+]]) : (tensor<4x8xf32>) -> tensor<4x8xf32>
      %2 = "onnx.Neg"(%0) : (tensor<*xf32>) -> tensor<*xf32>
      "onnx.Yield"(%2) : (tensor<*xf32>) -> ()
    }, {
      %2 = "onnx.Abs"(%0) : (tensor<*xf32>) -> tensor<*xf32>
      "onnx.Yield"(%2) : (tensor<*xf32>) -> ()
    // CHECK: }) {topt.regions = ["else_branch", "then_branch"]} : (tensor<i1>) -> tensor<4x8xf32>
    }) {topt.regions = ["else_branch", "then_branch"]} : (tensor<i1>) -> tensor<*xf32>
    return %1 : tensor<*xf32>
  }
}

// -----

// The number of heads follows from what is on both sides by the same name, and the shape is a
// literal then: a 0 for a dimension that stays in its place.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<?x?x64xf32> {topt.name = "x", topt.dims = ["batch", "seq", ""]}) -> (tensor<*xf32> {topt.name = "y"}) {
    %0 = "onnx.Constant"() {value = dense<[-1, 16]> : tensor<2xi64>} : () -> tensor<2xi64>
    %1 = "onnx.Shape"(%x) {end = 2 : i64} : (tensor<?x?x64xf32>) -> tensor<*xi64>
    %2 = "onnx.Concat"(%1, %0) {axis = 0 : i64} : (tensor<*xi64>, tensor<2xi64>) -> tensor<*xi64>
    // CHECK: [[SHAPE:%.*]] = "onnx.Constant"() {value = dense<[0, 0, 4, 16]> : tensor<4xi64>}
    // CHECK-NEXT: "onnx.Reshape"([[ARG0:%\w+]], [[SHAPE]]) : (tensor<?x?x64xf32>, tensor<4xi64>) -> tensor<?x?x4x16xf32>
    %3 = "onnx.Reshape"(%x, %2) {allowzero = 1 : i64} : (tensor<?x?x64xf32>, tensor<*xi64>) -> tensor<*xf32>
    return %3 : tensor<*xf32>
  }
}
