// RUN: tensoropt-opt %s -p join-boxes,dce --split-input-file | filecheck %s

// Two boxes fill the tensor: its first content is not read.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 17 : i64}} {
  func.func @main(%a: tensor<2x2xf32> {topt.name = "a"}, %b: tensor<2x1xf32> {topt.name = "b"}) -> (tensor<2x3xf32> {topt.name = "y"}) {
    // CHECK-NEXT: %[[Y:.*]] = "onnx.Concat"(%{{.*}}, %{{.*}}) {axis = 1 : i64} : (tensor<2x2xf32>, tensor<2x1xf32>) -> tensor<2x3xf32>
    // CHECK-NEXT: return %[[Y]]
    %x = "onnx.Constant"() {value = dense<0.0> : tensor<2x3xf32>} : () -> tensor<2x3xf32>
    %i = "onnx.Constant"() {value = dense<[[[0, 0], [0, 1]], [[1, 0], [1, 1]]]> : tensor<2x2x2xi64>} : () -> tensor<2x2x2xi64>
    %j = "onnx.Constant"() {value = dense<[[[0, 2]], [[1, 2]]]> : tensor<2x1x2xi64>} : () -> tensor<2x1x2xi64>
    %0 = "onnx.ScatterND"(%x, %i, %a) : (tensor<2x3xf32>, tensor<2x2x2xi64>, tensor<2x2xf32>) -> tensor<2x3xf32>
    %1 = "onnx.ScatterND"(%0, %j, %b) : (tensor<2x3xf32>, tensor<2x1x2xi64>, tensor<2x1xf32>) -> tensor<2x3xf32>
    return %1 : tensor<2x3xf32>
  }
}

// -----

// Indices that are too many for a literal are expanded and joined. Rows on both sides stay.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 17 : i64}} {
  func.func @main(%x: tensor<4x3x5xf32> {topt.name = "x"}, %a: tensor<2x3x5xf32> {topt.name = "a"}) -> (tensor<4x3x5xf32> {topt.name = "y"}) {
    // CHECK-DAG: %[[A:.*]] = "onnx.Slice"(%[[X:arg0|.*]], {{.*}}) : ({{.*}}) -> tensor<1x3x5xf32>
    // CHECK-DAG: %[[B:.*]] = "onnx.Slice"({{.*}}) : ({{.*}}) -> tensor<1x3x5xf32>
    // CHECK: "onnx.Concat"(%[[A]], %{{.*}}, %[[B]]) {axis = 0 : i64}
    // CHECK-NOT: onnx.ScatterND
    %sizes = "onnx.Constant"() {value = dense<[2, 3]> : tensor<2xi64>} : () -> tensor<2xi64>
    %last = "onnx.Constant"() {value = dense<-1> : tensor<1xi64>} : () -> tensor<1xi64>
    %r = "onnx.Constant"() {value = dense<[[1], [2]]> : tensor<2x1xi64>} : () -> tensor<2x1xi64>
    %c = "onnx.Constant"() {value = dense<[0, 1, 2]> : tensor<3xi64>} : () -> tensor<3xi64>
    %0 = "onnx.Expand"(%r, %sizes) : (tensor<2x1xi64>, tensor<2xi64>) -> tensor<2x3xi64>
    %1 = "onnx.Expand"(%c, %sizes) : (tensor<3xi64>, tensor<2xi64>) -> tensor<2x3xi64>
    %2 = "onnx.Unsqueeze"(%0, %last) : (tensor<2x3xi64>, tensor<1xi64>) -> tensor<2x3x1xi64>
    %3 = "onnx.Unsqueeze"(%1, %last) : (tensor<2x3xi64>, tensor<1xi64>) -> tensor<2x3x1xi64>
    %4 = "onnx.Concat"(%2, %3) {axis = -1 : i64} : (tensor<2x3x1xi64>, tensor<2x3x1xi64>) -> tensor<2x3x2xi64>
    %5 = "onnx.ScatterND"(%x, %4, %a) : (tensor<4x3x5xf32>, tensor<2x3x2xi64>, tensor<2x3x5xf32>) -> tensor<4x3x5xf32>
    return %5 : tensor<4x3x5xf32>
  }
}

// -----

// A box that is shorter in two dimensions, columns in another order, and sums stay.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 17 : i64}} {
  func.func @main(%x: tensor<2x3xf32> {topt.name = "x"}, %a: tensor<1x2xf32> {topt.name = "a"}, %b: tensor<2x2xf32> {topt.name = "b"}) -> (tensor<2x3xf32> {topt.name = "y"}) {
    // CHECK-COUNT-3: onnx.ScatterND
    %i = "onnx.Constant"() {value = dense<[[[0, 0], [0, 1]]]> : tensor<1x2x2xi64>} : () -> tensor<1x2x2xi64>
    %j = "onnx.Constant"() {value = dense<[[[0, 1], [0, 0]], [[1, 1], [1, 0]]]> : tensor<2x2x2xi64>} : () -> tensor<2x2x2xi64>
    %k = "onnx.Constant"() {value = dense<[[[0, 0], [0, 1]], [[1, 0], [1, 1]]]> : tensor<2x2x2xi64>} : () -> tensor<2x2x2xi64>
    %0 = "onnx.ScatterND"(%x, %i, %a) : (tensor<2x3xf32>, tensor<1x2x2xi64>, tensor<1x2xf32>) -> tensor<2x3xf32>
    %1 = "onnx.ScatterND"(%0, %j, %b) : (tensor<2x3xf32>, tensor<2x2x2xi64>, tensor<2x2xf32>) -> tensor<2x3xf32>
    %2 = "onnx.ScatterND"(%1, %k, %b) {reduction = "add"} : (tensor<2x3xf32>, tensor<2x2x2xi64>, tensor<2x2xf32>) -> tensor<2x3xf32>
    return %2 : tensor<2x3xf32>
  }
}
