// RUN: tensoropt-opt %s -p fuse-attention,dce --split-input-file | filecheck %s

// The mask is causal; the keys are not turned twice, and the scales are multiplied.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%q: tensor<1x2x4x3xf32> {topt.name = "q"}, %k: tensor<1x4x2x3xf32> {topt.name = "k"}, %v: tensor<1x2x4x3xf32> {topt.name = "v"}) -> (tensor<1x2x4x3xf32> {topt.name = "y"}) {
    // CHECK-NEXT: %[[K:.*]] = "onnx.Transpose"([[ARG1:%\w+]]) {perm = array<i64: 0, 2, 1, 3>}
    // CHECK-NEXT: %[[Y:.*]]:2 = "onnx.tensoropt.Attention"([[ARG0:%\w+]], %[[K]], [[ARG2:%\w+]]) {causal = 1 : i64, scale = 1.000000e+00 : f32} : (tensor<1x2x4x3xf32>, tensor<1x2x4x3xf32>, tensor<1x2x4x3xf32>) -> (tensor<1x2x4x3xf32>, tensor<1x2x4xf32>)
    // CHECK-NEXT: return %[[Y]]#0
    %two = "onnx.Constant"() {value = dense<2.0> : tensor<f32>} : () -> tensor<f32>
    %low = "onnx.Constant"() {value = dense<-1.0e30> : tensor<f32>} : () -> tensor<f32>
    %see = "onnx.Constant"() {value = dense<[[true, false, false, false], [true, true, false, false], [true, true, true, false], [true, true, true, true]]> : tensor<4x4xi1>} : () -> tensor<4x4xi1>
    %kt = "onnx.Transpose"(%k) {perm = array<i64: 0, 2, 3, 1>} : (tensor<1x4x2x3xf32>) -> tensor<1x2x3x4xf32>
    %qs = "onnx.Mul"(%q, %two) : (tensor<1x2x4x3xf32>, tensor<f32>) -> tensor<1x2x4x3xf32>
    %s = "onnx.MatMul"(%qs, %kt) : (tensor<1x2x4x3xf32>, tensor<1x2x3x4xf32>) -> tensor<1x2x4x4xf32>
    %h = "onnx.Div"(%s, %two) : (tensor<1x2x4x4xf32>, tensor<f32>) -> tensor<1x2x4x4xf32>
    %m = "onnx.Where"(%see, %h, %low) : (tensor<4x4xi1>, tensor<1x2x4x4xf32>, tensor<f32>) -> tensor<1x2x4x4xf32>
    %p = "onnx.Softmax"(%m) {axis = -1 : i64} : (tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
    %y = "onnx.MatMul"(%p, %v) : (tensor<1x2x4x4xf32>, tensor<1x2x4x3xf32>) -> tensor<1x2x4x3xf32>
    return %y : tensor<1x2x4x3xf32>
  }
}

// -----

// A weight that hides later keys is causal; the mask of keys becomes the bias.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%q: tensor<1x2x4x3xf32> {topt.name = "q"}, %k: tensor<1x2x3x4xf32> {topt.name = "k"}, %v: tensor<1x2x4x3xf32> {topt.name = "v"}, %seen: tensor<1x1x1x4xi1> {topt.name = "seen"}, %mask: tensor<4x4xf32> {topt.name = "mask", topt.param, topt.triangle = "hides"}) -> (tensor<1x2x4x3xf32> {topt.name = "y"}) {
    // CHECK: %[[BIAS:.*]] = "onnx.Where"([[ARG3:%\w+]], %{{.*}}, %{{.*}}) : (tensor<1x1x1x4xi1>, tensor<f32>, tensor<f32>) -> tensor<1x1x1x4xf32>
    // CHECK: "onnx.tensoropt.Attention"([[ARG0:%\w+]], %{{.*}}, [[ARG2:%\w+]], %[[BIAS]]) {causal = 1 : i64, scale = 1.000000e+00 : f32}
    %low = "onnx.Constant"() {value = dense<-1.0e30> : tensor<f32>} : () -> tensor<f32>
    %s = "onnx.MatMul"(%q, %k) : (tensor<1x2x4x3xf32>, tensor<1x2x3x4xf32>) -> tensor<1x2x4x4xf32>
    %m = "onnx.Add"(%s, %mask) : (tensor<1x2x4x4xf32>, tensor<4x4xf32>) -> tensor<1x2x4x4xf32>
    %n = "onnx.Where"(%seen, %m, %low) : (tensor<1x1x1x4xi1>, tensor<1x2x4x4xf32>, tensor<f32>) -> tensor<1x2x4x4xf32>
    %p = "onnx.Softmax"(%n) {axis = -1 : i64} : (tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
    %y = "onnx.MatMul"(%p, %v) : (tensor<1x2x4x4xf32>, tensor<1x2x4x3xf32>) -> tensor<1x2x4x3xf32>
    return %y : tensor<1x2x4x3xf32>
  }
}

// -----

// The weights of the values are a result too.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%q: tensor<1x2x4x3xf32> {topt.name = "q"}, %k: tensor<1x2x3x4xf32> {topt.name = "k"}, %v: tensor<1x2x4x3xf32> {topt.name = "v"}) -> (tensor<1x2x4x3xf32> {topt.name = "y"}, tensor<1x2x4x4xf32> {topt.name = "p"}) {
    // CHECK-NOT: tensoropt.Attention
    %s = "onnx.MatMul"(%q, %k) : (tensor<1x2x4x3xf32>, tensor<1x2x3x4xf32>) -> tensor<1x2x4x4xf32>
    %p = "onnx.Softmax"(%s) {axis = -1 : i64} : (tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
    %y = "onnx.MatMul"(%p, %v) : (tensor<1x2x4x4xf32>, tensor<1x2x4x3xf32>) -> tensor<1x2x4x3xf32>
    return %y, %p : tensor<1x2x4x3xf32>, tensor<1x2x4x4xf32>
  }
}

// -----

// An attention in blocks.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64, tensoropt = 1 : i64}} {
  func.func @main(%q: tensor<1x2x64x2xf32> {topt.name = "q"}, %k: tensor<1x2x2x64xf32> {topt.name = "k"}, %v: tensor<1x2x64x2xf32> {topt.name = "v"}) -> (tensor<1x2x64x2xf32> {topt.name = "y"}) {
    // CHECK: %[[K:.*]] = "onnx.Transpose"([[ARG1:%\w+]])
    // CHECK-NEXT: "onnx.tensoropt.Attention"([[ARG0:%\w+]], %[[K]], [[ARG2:%\w+]]) {causal = 1 : i64, scale = 1.000000e+00 : f32}
    %y:2 = "onnx.tensoropt.BlockedAttention"(%q, %k, %v) {causal = 1 : i64} : (tensor<1x2x64x2xf32>, tensor<1x2x2x64xf32>, tensor<1x2x64x2xf32>) -> (tensor<1x2x64x2xf32>, tensor<1x2x64x1xf32>)
    return %y#0 : tensor<1x2x64x2xf32>
  }
}

// -----

// Dropout is part of the operation until a step has its seeds.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%q: tensor<1x2x4x3xf32> {topt.name = "q"}, %k: tensor<1x2x3x4xf32> {topt.name = "k"}, %v: tensor<1x2x4x3xf32> {topt.name = "v"}) -> (tensor<1x2x4x3xf32> {topt.name = "y"}) {
    // CHECK-NOT: onnx.Dropout
    // CHECK: "onnx.tensoropt.AttentionWithDropout"([[ARG0:%\w+]], %{{.*}}, [[ARG2:%\w+]]) {causal = 0 : i64, ratio = 2.500000e-01 : f32, scale = 1.000000e+00 : f32}
    %ratio = "onnx.Constant"() {value = dense<0.25> : tensor<f32>} : () -> tensor<f32>
    %s = "onnx.MatMul"(%q, %k) : (tensor<1x2x4x3xf32>, tensor<1x2x3x4xf32>) -> tensor<1x2x4x4xf32>
    %p = "onnx.Softmax"(%s) {axis = -1 : i64} : (tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
    %d = "onnx.Dropout"(%p, %ratio) : (tensor<1x2x4x4xf32>, tensor<f32>) -> tensor<1x2x4x4xf32>
    %y = "onnx.MatMul"(%d, %v) : (tensor<1x2x4x4xf32>, tensor<1x2x4x3xf32>) -> tensor<1x2x4x3xf32>
    return %y : tensor<1x2x4x3xf32>
  }
}
