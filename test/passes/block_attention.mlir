// RUN: tensoropt-opt %s -p block-attention,dce --split-input-file | filecheck %s

// Places of rows and keys are compared: the mask is causal.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%q: tensor<2x64x2xf32> {topt.name = "q"}, %k: tensor<2x2x64xf32> {topt.name = "k"}, %v: tensor<2x64x2xf32> {topt.name = "v"}) -> (tensor<2x64x2xf32> {topt.name = "y"}) {
    // CHECK-NEXT: %[[Y:.*]]:2 = "onnx.tensoropt.BlockedAttention"([[ARG0:%\w+]], [[ARG1:%\w+]], [[ARG2:%\w+]]) {causal = 1 : i64} : (tensor<2x64x2xf32>, tensor<2x2x64xf32>, tensor<2x64x2xf32>) -> (tensor<2x64x2xf32>, tensor<2x64x1xf32>)
    // CHECK-NEXT: return %[[Y]]#0
    %n0 = "onnx.Constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
    %n = "onnx.Constant"() {value = dense<64> : tensor<i64>} : () -> tensor<i64>
    %n1 = "onnx.Constant"() {value = dense<1> : tensor<i64>} : () -> tensor<i64>
    %d0 = "onnx.Constant"() {value = dense<[0]> : tensor<1xi64>} : () -> tensor<1xi64>
    %d1 = "onnx.Constant"() {value = dense<[1]> : tensor<1xi64>} : () -> tensor<1xi64>
    %r = "onnx.Range"(%n0, %n, %n1) : (tensor<i64>, tensor<i64>, tensor<i64>) -> tensor<64xi64>
    %rows = "onnx.Unsqueeze"(%r, %d1) : (tensor<64xi64>, tensor<1xi64>) -> tensor<64x1xi64>
    %keys = "onnx.Unsqueeze"(%r, %d0) : (tensor<64xi64>, tensor<1xi64>) -> tensor<1x64xi64>
    %see = "onnx.GreaterOrEqual"(%rows, %keys) : (tensor<64x1xi64>, tensor<1x64xi64>) -> tensor<64x64xi1>
    %low = "onnx.Constant"() {value = dense<-3.0e38> : tensor<f32>} : () -> tensor<f32>
    %s = "onnx.MatMul"(%q, %k) : (tensor<2x64x2xf32>, tensor<2x2x64xf32>) -> tensor<2x64x64xf32>
    %m = "onnx.Where"(%see, %s, %low) : (tensor<64x64xi1>, tensor<2x64x64xf32>, tensor<f32>) -> tensor<2x64x64xf32>
    %p = "onnx.Softmax"(%m) {axis = -1 : i64} : (tensor<2x64x64xf32>) -> tensor<2x64x64xf32>
    %y = "onnx.MatMul"(%p, %v) : (tensor<2x64x64xf32>, tensor<2x64x2xf32>) -> tensor<2x64x2xf32>
    return %y : tensor<2x64x2xf32>
  }
}

// -----

// The upper triangle is hidden; the scale moves to the queries.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%q: tensor<2x64x2xf32> {topt.name = "q"}, %k: tensor<2x2x64xf32> {topt.name = "k"}, %v: tensor<2x64x2xf32> {topt.name = "v"}) -> (tensor<2x64x2xf32> {topt.name = "y"}) {
    // CHECK: %[[Q:.*]] = "onnx.Mul"([[ARG0:%\w+]], %{{.*}})
    // CHECK-NEXT: "onnx.tensoropt.BlockedAttention"(%[[Q]], [[ARG1:%\w+]], [[ARG2:%\w+]]) {causal = 1 : i64}
    %one = "onnx.Constant"() {value = dense<1> : tensor<i64>} : () -> tensor<i64>
    %shape = "onnx.Constant"() {value = dense<[64, 64]> : tensor<2xi64>} : () -> tensor<2xi64>
    %full = "onnx.ConstantOfShape"(%shape) {value = dense<-1.0e30> : tensor<1xf32>} : (tensor<2xi64>) -> tensor<64x64xf32>
    %t = "onnx.Trilu"(%full, %one) {upper = 1 : i64} : (tensor<64x64xf32>, tensor<i64>) -> tensor<64x64xf32>
    %s = "onnx.MatMul"(%q, %k) : (tensor<2x64x2xf32>, tensor<2x2x64xf32>) -> tensor<2x64x64xf32>
    %eight = "onnx.Constant"() {value = dense<2.0> : tensor<f32>} : () -> tensor<f32>
    %s8 = "onnx.Div"(%s, %eight) : (tensor<2x64x64xf32>, tensor<f32>) -> tensor<2x64x64xf32>
    %m = "onnx.Add"(%s8, %t) : (tensor<2x64x64xf32>, tensor<64x64xf32>) -> tensor<2x64x64xf32>
    %p = "onnx.Softmax"(%m) {axis = -1 : i64} : (tensor<2x64x64xf32>) -> tensor<2x64x64xf32>
    %y = "onnx.MatMul"(%p, %v) : (tensor<2x64x64xf32>, tensor<2x64x2xf32>) -> tensor<2x64x2xf32>
    return %y : tensor<2x64x2xf32>
  }
}

// -----

// Bools of the inputs are a mask; they may tell which keys are hidden.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%q: tensor<2x64x2xf32> {topt.name = "q"}, %k: tensor<2x2x64xf32> {topt.name = "k"}, %v: tensor<2x64x2xf32> {topt.name = "v"}, %hide: tensor<2x1x64xi1> {topt.name = "hide"}) -> (tensor<2x64x2xf32> {topt.name = "y"}) {
    // CHECK: %[[SEEN:.*]] = "onnx.Not"([[HIDDEN:%\w+]])
    // CHECK-NEXT: "onnx.tensoropt.BlockedAttention"([[ARG0:%\w+]], [[ARG1:%\w+]], [[ARG2:%\w+]], %[[SEEN]]) {causal = 0 : i64}
    %low = "onnx.Constant"() {value = dense<-3.0e38> : tensor<f32>} : () -> tensor<f32>
    %s = "onnx.MatMul"(%q, %k) : (tensor<2x64x2xf32>, tensor<2x2x64xf32>) -> tensor<2x64x64xf32>
    %m = "onnx.Where"(%hide, %low, %s) : (tensor<2x1x64xi1>, tensor<f32>, tensor<2x64x64xf32>) -> tensor<2x64x64xf32>
    %p = "onnx.Softmax"(%m) {axis = -1 : i64} : (tensor<2x64x64xf32>) -> tensor<2x64x64xf32>
    %y = "onnx.MatMul"(%p, %v) : (tensor<2x64x64xf32>, tensor<2x64x2xf32>) -> tensor<2x64x2xf32>
    return %y : tensor<2x64x2xf32>
  }
}

// -----

// Terms that a weight decides may need a gradient.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%q: tensor<2x64x2xf32> {topt.name = "q"}, %k: tensor<2x2x64xf32> {topt.name = "k"}, %v: tensor<2x64x2xf32> {topt.name = "v"}, %b: tensor<64x64xf32> {topt.name = "b", topt.param}) -> (tensor<2x64x2xf32> {topt.name = "y"}) {
    // CHECK-NOT: tensoropt.BlockedAttention
    // CHECK: return
    %s = "onnx.MatMul"(%q, %k) : (tensor<2x64x2xf32>, tensor<2x2x64xf32>) -> tensor<2x64x64xf32>
    %m = "onnx.Add"(%s, %b) : (tensor<2x64x64xf32>, tensor<64x64xf32>) -> tensor<2x64x64xf32>
    %p = "onnx.Softmax"(%m) {axis = -1 : i64} : (tensor<2x64x64xf32>) -> tensor<2x64x64xf32>
    %y = "onnx.MatMul"(%p, %v) : (tensor<2x64x64xf32>, tensor<2x64x2xf32>) -> tensor<2x64x2xf32>
    return %y : tensor<2x64x2xf32>
  }
}

// -----

// Scores that something else reads are kept.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%q: tensor<2x64x2xf32> {topt.name = "q"}, %k: tensor<2x2x64xf32> {topt.name = "k"}, %v: tensor<2x64x2xf32> {topt.name = "v"}) -> (tensor<2x64x2xf32> {topt.name = "y"}) {
    // CHECK-NOT: tensoropt.BlockedAttention
    // CHECK: return
    %s = "onnx.MatMul"(%q, %k) : (tensor<2x64x2xf32>, tensor<2x2x64xf32>) -> tensor<2x64x64xf32>
    %p = "onnx.Softmax"(%s) {axis = -1 : i64} : (tensor<2x64x64xf32>) -> tensor<2x64x64xf32>
    %z = "onnx.MatMul"(%p, %v) : (tensor<2x64x64xf32>, tensor<2x64x2xf32>) -> tensor<2x64x2xf32>
    %w = "onnx.MatMul"(%s, %v) : (tensor<2x64x64xf32>, tensor<2x64x2xf32>) -> tensor<2x64x2xf32>
    %y = "onnx.Add"(%z, %w) : (tensor<2x64x2xf32>, tensor<2x64x2xf32>) -> tensor<2x64x2xf32>
    return %y : tensor<2x64x2xf32>
  }
}

// -----

// A row that does not see its own key: the mask is not causal.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%q: tensor<2x64x2xf32> {topt.name = "q"}, %k: tensor<2x2x64xf32> {topt.name = "k"}, %v: tensor<2x64x2xf32> {topt.name = "v"}) -> (tensor<2x64x2xf32> {topt.name = "y"}) {
    // CHECK: "onnx.tensoropt.BlockedAttention"({{.*}}, {{.*}}, {{.*}}, %{{.*}}) {causal = 0 : i64}
    %n0 = "onnx.Constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
    %n = "onnx.Constant"() {value = dense<64> : tensor<i64>} : () -> tensor<i64>
    %n1 = "onnx.Constant"() {value = dense<1> : tensor<i64>} : () -> tensor<i64>
    %d0 = "onnx.Constant"() {value = dense<[0]> : tensor<1xi64>} : () -> tensor<1xi64>
    %d1 = "onnx.Constant"() {value = dense<[1]> : tensor<1xi64>} : () -> tensor<1xi64>
    %r = "onnx.Range"(%n0, %n, %n1) : (tensor<i64>, tensor<i64>, tensor<i64>) -> tensor<64xi64>
    %rows = "onnx.Unsqueeze"(%r, %d1) : (tensor<64xi64>, tensor<1xi64>) -> tensor<64x1xi64>
    %keys = "onnx.Unsqueeze"(%r, %d0) : (tensor<64xi64>, tensor<1xi64>) -> tensor<1x64xi64>
    %see = "onnx.Greater"(%rows, %keys) : (tensor<64x1xi64>, tensor<1x64xi64>) -> tensor<64x64xi1>
    %low = "onnx.Constant"() {value = dense<-3.0e38> : tensor<f32>} : () -> tensor<f32>
    %s = "onnx.MatMul"(%q, %k) : (tensor<2x64x2xf32>, tensor<2x2x64xf32>) -> tensor<2x64x64xf32>
    %m = "onnx.Where"(%see, %s, %low) : (tensor<64x64xi1>, tensor<2x64x64xf32>, tensor<f32>) -> tensor<2x64x64xf32>
    %p = "onnx.Softmax"(%m) {axis = -1 : i64} : (tensor<2x64x64xf32>) -> tensor<2x64x64xf32>
    %y = "onnx.MatMul"(%p, %v) : (tensor<2x64x64xf32>, tensor<2x64x2xf32>) -> tensor<2x64x2xf32>
    return %y : tensor<2x64x2xf32>
  }
}
