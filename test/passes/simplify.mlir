// RUN: tensoropt-opt %s -p simplify --split-input-file | filecheck %s

// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x"}, %t: tensor<i1> {topt.name = "t"}) -> (tensor<4x8xf32> {topt.name = "a"}, tensor<4x8xf32> {topt.name = "b"}, tensor<4x8xi1> {topt.name = "c"}, tensor<8x4xf32> {topt.name = "d"}, tensor<4x8xf16> {topt.name = "e"}) {
    %n = "onnx.NoValue"() : () -> none
    %off = "onnx.Constant"() {value = dense<false> : tensor<i1>} : () -> tensor<i1>
    %0 = "onnx.Identity"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %1 = "onnx.Dropout"(%0) : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %2 = "onnx.Dropout"(%1, %n, %off) : (tensor<4x8xf32>, none, tensor<i1>) -> tensor<4x8xf32>
    %3 = "onnx.Cast"(%2) {to = 1 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %4 = "onnx.Transpose"(%3) {perm = array<i64: 0, 1>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    // A mask that is used, a training mode that is not known, a change of order or type: they stay.
    // CHECK: %[[B:.*]] = "onnx.Dropout"([[ARG0:%\w+]], %{{.*}}, [[ARG1:%\w+]])
    %5 = "onnx.Dropout"(%x, %n, %t) : (tensor<4x8xf32>, none, tensor<i1>) -> tensor<4x8xf32>
    // CHECK-NEXT: %[[C:.*]]:2 = "onnx.Dropout"([[ARG0]])
    %6:2 = "onnx.Dropout"(%x) : (tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xi1>)
    // CHECK-NEXT: %[[D:.*]] = "onnx.Transpose"([[ARG0]])
    %7 = "onnx.Transpose"(%x) : (tensor<4x8xf32>) -> tensor<8x4xf32>
    // CHECK-NEXT: %[[E:.*]] = "onnx.Cast"([[ARG0]])
    %8 = "onnx.Cast"(%x) {to = 10 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf16>
    // CHECK-NEXT: return [[ARG0]], %[[B]], %[[C]]#1, %[[D]], %[[E]]
    return %4, %5, %6#1, %7, %8 : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xi1>, tensor<8x4xf32>, tensor<4x8xf16>
  }
}

// -----

// A cast like another tensor does not read it.
// CHECK-LABEL: func.func @main
// CHECK-NEXT: %0 = "onnx.Cast"(%arg0) {saturate = 0 : i64, to = 10 : i64} : (tensor<4xf32>) -> tensor<4xf16>
// CHECK-NEXT: return %0
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<4xf32> {topt.name = "x"}, %y: tensor<8xf16> {topt.name = "y"}) -> (tensor<4xf16> {topt.name = "z"}) {
    %0 = "onnx.CastLike"(%x, %y) {saturate = 0 : i64} : (tensor<4xf32>, tensor<8xf16>) -> tensor<4xf16>
    return %0 : tensor<4xf16>
  }
}

// -----

// Before opset 7 an attribute said whether Dropout is off.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 6 : i64}} {
  func.func @main(%x: tensor<4xf32> {topt.name = "x"}) -> (tensor<4xf32> {topt.name = "a"}, tensor<4xf32> {topt.name = "b"}) {
    // CHECK-NEXT: %[[A:.*]] = "onnx.Dropout"([[ARG0:%\w+]]) :
    %0 = "onnx.Dropout"(%x) : (tensor<4xf32>) -> tensor<4xf32>
    %1 = "onnx.Dropout"(%x) {is_test = 1 : i64} : (tensor<4xf32>) -> tensor<4xf32>
    // CHECK-NEXT: return %[[A]], [[ARG0]]
    return %0, %1 : tensor<4xf32>, tensor<4xf32>
  }
}

// -----

// ceil_mode goes where it adds no window: not where sizes are unknown, nor where it adds one.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 19 : i64}} {
  func.func @main(%x: tensor<1x1x5x3xf32> {topt.name = "x"}, %z: tensor<1x1x?x3xf32> {topt.name = "z"}) -> (tensor<1x1x3x2xf32> {topt.name = "a"}, tensor<1x1x3x2xf32> {topt.name = "b"}, tensor<1x1x?x2xf32> {topt.name = "c"}) {
    // A fourth window would begin at 6, beyond the padding of 1 and the 5 rows.
    // CHECK: "onnx.AveragePool"([[ARG0:%\w+]]) {kernel_shape = array<i64: 3, 3>, pads = array<i64: 1, 2, 2, 0>, strides = array<i64: 2, 2>}
    %0 = "onnx.AveragePool"(%x) {ceil_mode = 1 : i64, kernel_shape = array<i64: 3, 3>, pads = array<i64: 1, 2, 2, 0>, strides = array<i64: 2, 2>} : (tensor<1x1x5x3xf32>) -> tensor<1x1x3x2xf32>
    // CHECK-NEXT: "onnx.MaxPool"([[ARG0]]) {ceil_mode = 1 : i64
    %1 = "onnx.MaxPool"(%x) {ceil_mode = 1 : i64, kernel_shape = array<i64: 2, 2>, strides = array<i64: 2, 2>} : (tensor<1x1x5x3xf32>) -> tensor<1x1x3x2xf32>
    // CHECK-NEXT: "onnx.LpPool"([[ARG1:%\w+]]) {ceil_mode = 1 : i64
    %2 = "onnx.LpPool"(%z) {ceil_mode = 1 : i64, kernel_shape = array<i64: 3, 3>, pads = array<i64: 1, 2, 2, 0>, strides = array<i64: 2, 2>} : (tensor<1x1x?x3xf32>) -> tensor<1x1x?x2xf32>
    return %0, %1, %2 : tensor<1x1x3x2xf32>, tensor<1x1x3x2xf32>, tensor<1x1x?x2xf32>
  }
}

// -----

// Nor where not even a rank is known.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 19 : i64}} {
  func.func @main(%x: tensor<*xf32> {topt.name = "x"}) -> (tensor<?x?x?x?xf32> {topt.name = "y"}) {
    // CHECK: "onnx.LpPool"([[ARG0:%\w+]]) {ceil_mode = 1 : i64, kernel_shape = array<i64: 3, 3>}
    %0 = "onnx.LpPool"(%x) {ceil_mode = 1 : i64, kernel_shape = array<i64: 3, 3>} : (tensor<*xf32>) -> tensor<?x?x?x?xf32>
    return %0 : tensor<?x?x?x?xf32>
  }
}

// -----

// ONNX Runtime pads SAME without a look at dilations: written as numbers, unless they are negative.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 19 : i64}} {
  func.func @main(%x: tensor<1x1x9x5xf32> {topt.name = "x"}) -> (tensor<1x1x7x5xf32> {topt.name = "a"}, tensor<1x1x2x2xf32> {topt.name = "b"}, tensor<1x1x9x5xf32> {topt.name = "c"}) {
    // CHECK: "onnx.LpPool"([[ARG0:%\w+]]) {dilations = array<i64: 3, 1>, kernel_shape = array<i64: 2, 2>, pads = array<i64: 0, 0, 1, 1>}
    %0 = "onnx.LpPool"(%x) {auto_pad = "SAME_UPPER", dilations = array<i64: 3, 1>, kernel_shape = array<i64: 2, 2>} : (tensor<1x1x9x5xf32>) -> tensor<1x1x7x5xf32>
    // CHECK-NEXT: "onnx.MaxPool"([[ARG0]]) {auto_pad = "SAME_LOWER"
    %1 = "onnx.MaxPool"(%x) {auto_pad = "SAME_LOWER", dilations = array<i64: 2, 1>, kernel_shape = array<i64: 2, 2>, strides = array<i64: 3, 3>} : (tensor<1x1x9x5xf32>) -> tensor<1x1x2x2xf32>
    // CHECK-NEXT: "onnx.AveragePool"([[ARG0]]) {auto_pad = "SAME_UPPER"
    %2 = "onnx.AveragePool"(%x) {auto_pad = "SAME_UPPER", kernel_shape = array<i64: 2, 2>} : (tensor<1x1x9x5xf32>) -> tensor<1x1x9x5xf32>
    return %0, %1, %2 : tensor<1x1x7x5xf32>, tensor<1x1x2x2xf32>, tensor<1x1x9x5xf32>
  }
}

// -----

// Picks in another order, or not all, stay, and so do those of unknown sizes.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<2x6xf32> {topt.name = "x"}, %z: tensor<?x2xf32> {topt.name = "z"}) -> (tensor<2x3x2xf32> {topt.name = "a"}, tensor<2x3x2x1xf32> {topt.name = "b"}, tensor<1x6xf32> {topt.name = "c"}, tensor<2x2xf32> {topt.name = "d"}) {
    %all = "onnx.Constant"() {value = dense<[[0, 1], [2, 3], [4, 5]]> : tensor<3x2xi64>} : () -> tensor<3x2xi64>
    %turned = "onnx.Constant"() {value = dense<[[1], [0]]> : tensor<2x1xi64>} : () -> tensor<2x1xi64>
    %one = "onnx.Constant"() {value = dense<0> : tensor<1xi64>} : () -> tensor<1xi64>
    %two = "onnx.Constant"() {value = dense<[0, 1]> : tensor<2xi64>} : () -> tensor<2xi64>
    // CHECK: %[[SHAPE:.*]] = "onnx.Constant"() {value = dense<[2, 3, 2]> : tensor<3xi64>}
    // CHECK-NEXT: %[[A:.*]] = "onnx.Reshape"([[ARG0:%\w+]], %[[SHAPE]]) :
    %0 = "onnx.Gather"(%x, %all) {axis = 1 : i64} : (tensor<2x6xf32>, tensor<3x2xi64>) -> tensor<2x3x2xf32>
    // CHECK-NEXT: "onnx.Gather"
    %1 = "onnx.Gather"(%0, %turned) {axis = 2 : i64} : (tensor<2x3x2xf32>, tensor<2x1xi64>) -> tensor<2x3x2x1xf32>
    // CHECK-NEXT: "onnx.Gather"
    %2 = "onnx.Gather"(%x, %one) : (tensor<2x6xf32>, tensor<1xi64>) -> tensor<1x6xf32>
    // CHECK-NEXT: "onnx.Gather"
    %3 = "onnx.Gather"(%z, %two) : (tensor<?x2xf32>, tensor<2xi64>) -> tensor<2x2xf32>
    // CHECK-NEXT: return %[[A]]
    return %0, %1, %2, %3 : tensor<2x3x2xf32>, tensor<2x3x2x1xf32>, tensor<1x6xf32>, tensor<2x2xf32>
  }
}
