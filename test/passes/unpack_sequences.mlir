// RUN: tensoropt-opt %s -p unpack-sequences,dce --split-input-file | filecheck %s

// Parts of one size, the last smaller, are results of one Split; a part that is all is no Split.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 18 : i64}} {
  func.func @main(%x: tensor<2x5xf32> {topt.name = "x"}) -> (tensor<2x2xf32> {topt.name = "a"}, tensor<2x1xf32> {topt.name = "b"}, tensor<2x5xf32> {topt.name = "c"}, tensor<i64> {topt.name = "n"}) {
    // CHECK: %[[SIZES:.*]] = "onnx.Constant"() {value = dense<[2, 2, 1]> : tensor<3xi64>}
    // CHECK-NEXT: %[[S:.*]]:3 = "onnx.Split"([[ARG0:%\w+]], %[[SIZES]]) {axis = -1 : i64} : (tensor<2x5xf32>, tensor<3xi64>) -> (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x1xf32>)
    // CHECK-NEXT: %[[N:.*]] = "onnx.Constant"() {value = dense<3> : tensor<i64>}
    // CHECK-NEXT: return %[[S]]#0, %[[S]]#2, [[ARG0]], %[[N]]
    %two = "onnx.Constant"() {value = dense<2> : tensor<i64>} : () -> tensor<i64>
    %nine = "onnx.Constant"() {value = dense<9> : tensor<i32>} : () -> tensor<i32>
    %zero = "onnx.Constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
    %last = "onnx.Constant"() {value = dense<-1> : tensor<i64>} : () -> tensor<i64>
    %s = "onnx.SplitToSequence"(%x, %two) {axis = -1 : i64} : (tensor<2x5xf32>, tensor<i64>) -> !onnx.Seq<tensor<2x?xf32>>
    %0 = "onnx.SequenceAt"(%s, %zero) : (!onnx.Seq<tensor<2x?xf32>>, tensor<i64>) -> tensor<2x2xf32>
    %1 = "onnx.SequenceAt"(%s, %last) : (!onnx.Seq<tensor<2x?xf32>>, tensor<i64>) -> tensor<2x1xf32>
    %t = "onnx.SplitToSequence"(%x, %nine) : (tensor<2x5xf32>, tensor<i32>) -> !onnx.Seq<tensor<?x5xf32>>
    %2 = "onnx.SequenceAt"(%t, %zero) : (!onnx.Seq<tensor<?x5xf32>>, tensor<i64>) -> tensor<2x5xf32>
    %3 = "onnx.SequenceLength"(%s) : (!onnx.Seq<tensor<2x?xf32>>) -> tensor<i64>
    return %0, %1, %2, %3 : tensor<2x2xf32>, tensor<2x1xf32>, tensor<2x5xf32>, tensor<i64>
  }
}

// -----

// Listed sizes need no known dimension, and before opset 13 they are an attribute.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 12 : i64}} {
  func.func @main(%x: tensor<?x4xf32> {topt.name = "x"}) -> (tensor<3x4xf32> {topt.name = "a"}) {
    // CHECK-NEXT: %[[S:.*]]:2 = "onnx.Split"([[ARG0:%\w+]]) {axis = 0 : i64, split = array<i64: 0, 3>} : (tensor<?x4xf32>) -> (tensor<0x4xf32>, tensor<3x4xf32>)
    // CHECK-NEXT: return %[[S]]#1
    %sizes = "onnx.Constant"() {value = dense<[0, 3]> : tensor<2xi64>} : () -> tensor<2xi64>
    %one = "onnx.Constant"() {value = dense<1> : tensor<i64>} : () -> tensor<i64>
    %s = "onnx.SplitToSequence"(%x, %sizes) {keepdims = 0 : i64} : (tensor<?x4xf32>, tensor<2xi64>) -> !onnx.Seq<tensor<?x4xf32>>
    %0 = "onnx.SequenceAt"(%s, %one) : (!onnx.Seq<tensor<?x4xf32>>, tensor<i64>) -> tensor<3x4xf32>
    return %0 : tensor<3x4xf32>
  }
}

// -----

// Without sizes each part is one, and keepdims says whether its dimension stays; of one size too.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 18 : i64}} {
  func.func @main(%x: tensor<2x4xf32> {topt.name = "x"}) -> (tensor<4xf32> {topt.name = "a"}, tensor<2xf32> {topt.name = "b"}, tensor<1x4xf32> {topt.name = "c"}) {
    // CHECK: %[[A:.*]]:2 = "onnx.Split"([[ARG0:%\w+]], %{{.*}}) {axis = 0 : i64} : (tensor<2x4xf32>, tensor<2xi64>) -> (tensor<1x4xf32>, tensor<1x4xf32>)
    // CHECK: %[[A1:.*]] = "onnx.Squeeze"(%[[A]]#1, %{{.*}}) : (tensor<1x4xf32>, tensor<1xi64>) -> tensor<4xf32>
    // CHECK: %[[B:.*]]:4 = "onnx.Split"([[ARG0]], %{{.*}}) {axis = -1 : i64}
    // CHECK: %[[B1:.*]] = "onnx.Squeeze"(%[[B]]#1, %{{.*}}) : (tensor<2x1xf32>, tensor<1xi64>) -> tensor<2xf32>
    // CHECK: %[[C:.*]]:2 = "onnx.Split"([[ARG0]], %{{.*}}) {axis = 0 : i64}
    // CHECK-NEXT: return %[[A1]], %[[B1]], %[[C]]#1
    %none = "onnx.NoValue"() : () -> none
    %one = "onnx.Constant"() {value = dense<1> : tensor<i64>} : () -> tensor<i64>
    %s = "onnx.SplitToSequence"(%x, %none) {keepdims = 0 : i64} : (tensor<2x4xf32>, none) -> !onnx.Seq<tensor<4xf32>>
    %0 = "onnx.SequenceAt"(%s, %one) : (!onnx.Seq<tensor<4xf32>>, tensor<i64>) -> tensor<4xf32>
    %t = "onnx.SplitToSequence"(%x, %one) {axis = -1 : i64, keepdims = 0 : i64} : (tensor<2x4xf32>, tensor<i64>) -> !onnx.Seq<tensor<2x1xf32>>
    %1 = "onnx.SequenceAt"(%t, %one) : (!onnx.Seq<tensor<2x1xf32>>, tensor<i64>) -> tensor<2xf32>
    %u = "onnx.SplitToSequence"(%x) : (tensor<2x4xf32>) -> !onnx.Seq<tensor<1x4xf32>>
    %2 = "onnx.SequenceAt"(%u, %one) : (!onnx.Seq<tensor<1x4xf32>>, tensor<i64>) -> tensor<1x4xf32>
    return %0, %1, %2 : tensor<4xf32>, tensor<2xf32>, tensor<1x4xf32>
  }
}

// -----

// Items come and go at known positions, and are joined along a dimension that is there or is new.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 18 : i64}} {
  func.func @main(%x: tensor<4xf32> {topt.name = "x"}, %y: tensor<4xf32> {topt.name = "y"}, %z: tensor<4xf32> {topt.name = "z"}) -> (tensor<12xf32> {topt.name = "a"}, tensor<4x2xf32> {topt.name = "b"}, tensor<4xf32> {topt.name = "c"}) {
    // CHECK: %[[A:.*]] = "onnx.Concat"([[Y:%\w+]], [[X:%\w+]], [[Z:%\w+]]) {axis = 0 : i64} : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<12xf32>
    // CHECK: %[[Y1:.*]] = "onnx.Unsqueeze"([[Y]], %{{.*}}) : (tensor<4xf32>, tensor<1xi64>) -> tensor<4x1xf32>
    // CHECK: %[[X1:.*]] = "onnx.Unsqueeze"([[X]], %{{.*}}) : (tensor<4xf32>, tensor<1xi64>) -> tensor<4x1xf32>
    // CHECK-NEXT: %[[B:.*]] = "onnx.Concat"(%[[Y1]], %[[X1]]) {axis = 1 : i64} : (tensor<4x1xf32>, tensor<4x1xf32>) -> tensor<4x2xf32>
    // CHECK-NEXT: return %[[A]], %[[B]], [[X]]
    %none = "onnx.NoValue"() : () -> none
    %last = "onnx.Constant"() {value = dense<-1> : tensor<i64>} : () -> tensor<i64>
    %0 = "onnx.SequenceEmpty"() : () -> !onnx.Seq<tensor<4xf32>>
    %1 = "onnx.SequenceInsert"(%0, %x) : (!onnx.Seq<tensor<4xf32>>, tensor<4xf32>) -> !onnx.Seq<tensor<4xf32>>
    %2 = "onnx.SequenceInsert"(%1, %z, %none) : (!onnx.Seq<tensor<4xf32>>, tensor<4xf32>, none) -> !onnx.Seq<tensor<4xf32>>
    %3 = "onnx.SequenceErase"(%2, %last) : (!onnx.Seq<tensor<4xf32>>, tensor<i64>) -> !onnx.Seq<tensor<4xf32>>
    // In front of the last item.
    %4 = "onnx.SequenceInsert"(%3, %y, %last) : (!onnx.Seq<tensor<4xf32>>, tensor<4xf32>, tensor<i64>) -> !onnx.Seq<tensor<4xf32>>
    %5 = "onnx.SequenceInsert"(%4, %z) : (!onnx.Seq<tensor<4xf32>>, tensor<4xf32>) -> !onnx.Seq<tensor<4xf32>>
    %6 = "onnx.ConcatFromSequence"(%5) {axis = 0 : i64} : (!onnx.Seq<tensor<4xf32>>) -> tensor<12xf32>
    %7 = "onnx.SequenceErase"(%5) : (!onnx.Seq<tensor<4xf32>>) -> !onnx.Seq<tensor<4xf32>>
    %8 = "onnx.Identity"(%7) : (!onnx.Seq<tensor<4xf32>>) -> !onnx.Seq<tensor<4xf32>>
    %9 = "onnx.ConcatFromSequence"(%8) {axis = -1 : i64, new_axis = 1 : i64} : (!onnx.Seq<tensor<4xf32>>) -> tensor<4x2xf32>
    %10 = "onnx.SequenceConstruct"(%x) : (tensor<4xf32>) -> !onnx.Seq<tensor<4xf32>>
    %11 = "onnx.ConcatFromSequence"(%10) {axis = 0 : i64} : (!onnx.Seq<tensor<4xf32>>) -> tensor<4xf32>
    return %6, %9, %11 : tensor<12xf32>, tensor<4x2xf32>, tensor<4xf32>
  }
}

// -----

// The shape of one part tells the sizes of the next.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 18 : i64}} {
  func.func @main(%x: tensor<7x8xf32> {topt.name = "x"}) -> (tensor<3x4xf32> {topt.name = "a"}) {
    // CHECK: %[[S:.*]]:2 = "onnx.Split"([[ARG0:%\w+]], %{{.*}}) {axis = 0 : i64} : (tensor<7x8xf32>, tensor<2xi64>) -> (tensor<4x8xf32>, tensor<3x8xf32>)
    // CHECK: %[[T:.*]]:2 = "onnx.Split"(%[[S]]#1, %{{.*}}) {axis = 1 : i64} : (tensor<3x8xf32>, tensor<2xi64>) -> (tensor<3x4xf32>, tensor<3x4xf32>)
    // CHECK-NEXT: return %[[T]]#1
    %sizes = "onnx.Constant"() {value = dense<[4, 3]> : tensor<2xi64>} : () -> tensor<2xi64>
    %two = "onnx.Constant"() {value = dense<2> : tensor<i64>} : () -> tensor<i64>
    %one = "onnx.Constant"() {value = dense<1> : tensor<i64>} : () -> tensor<i64>
    %s = "onnx.SplitToSequence"(%x, %sizes) : (tensor<7x8xf32>, tensor<2xi64>) -> !onnx.Seq<tensor<?x8xf32>>
    %0 = "onnx.SequenceAt"(%s, %one) : (!onnx.Seq<tensor<?x8xf32>>, tensor<i64>) -> tensor<?x8xf32>
    %1 = "onnx.Shape"(%0) : (tensor<?x8xf32>) -> tensor<2xi64>
    %2 = "onnx.Gather"(%1, %one) {axis = 0 : i64} : (tensor<2xi64>, tensor<i64>) -> tensor<i64>
    %3 = "onnx.Div"(%2, %two) : (tensor<i64>, tensor<i64>) -> tensor<i64>
    %t = "onnx.SplitToSequence"(%0, %3) {axis = 1 : i64} : (tensor<?x8xf32>, tensor<i64>) -> !onnx.Seq<tensor<?x?xf32>>
    %4 = "onnx.SequenceAt"(%t, %one) : (!onnx.Seq<tensor<?x?xf32>>, tensor<i64>) -> tensor<3x4xf32>
    return %4 : tensor<3x4xf32>
  }
}

// -----

// A position that is an input stays, and reads a sequence that is made of the parts.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 18 : i64}} {
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x"}, %i: tensor<i64> {topt.name = "i"}) -> (tensor<2x8xf32> {topt.name = "a"}, tensor<2x8xf32> {topt.name = "b"}) {
    // CHECK: %[[S:.*]]:2 = "onnx.Split"([[ARG0:%\w+]], %{{.*}}) {axis = 0 : i64}
    // CHECK-NEXT: %[[Q:.*]] = "onnx.SequenceConstruct"(%[[S]]#0, %[[S]]#1) :
    // CHECK-NEXT: %[[A:.*]] = "onnx.SequenceAt"(%[[Q]], [[ARG1:%\w+]]) :
    // CHECK-NEXT: return %[[A]], %[[S]]#0
    %two = "onnx.Constant"() {value = dense<2> : tensor<i64>} : () -> tensor<i64>
    %zero = "onnx.Constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
    %s = "onnx.SplitToSequence"(%x, %two) : (tensor<4x8xf32>, tensor<i64>) -> !onnx.Seq<tensor<2x8xf32>>
    %0 = "onnx.SequenceAt"(%s, %i) : (!onnx.Seq<tensor<2x8xf32>>, tensor<i64>) -> tensor<2x8xf32>
    %1 = "onnx.SequenceAt"(%s, %zero) : (!onnx.Seq<tensor<2x8xf32>>, tensor<i64>) -> tensor<2x8xf32>
    return %0, %1 : tensor<2x8xf32>, tensor<2x8xf32>
  }
}

// -----

// Sizes that are not known, that do not add up, and a position that is outside: they stay.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 18 : i64}} {
  func.func @main(%x: tensor<?x8xf32> {topt.name = "x"}, %n: tensor<i64> {topt.name = "n"}) -> (tensor<?x8xf32> {topt.name = "a"}, tensor<?x?xf32> {topt.name = "b"}, tensor<?x?xf32> {topt.name = "c"}, tensor<?x8xf32> {topt.name = "d"}) {
    // CHECK-COUNT-2: "onnx.SplitToSequence"
    // CHECK: "onnx.SequenceConstruct"([[ARG0:%\w+]])
    // CHECK-COUNT-3: "onnx.SequenceAt"
    %two = "onnx.Constant"() {value = dense<2> : tensor<i64>} : () -> tensor<i64>
    %zero = "onnx.Constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
    %s = "onnx.SplitToSequence"(%x, %two) : (tensor<?x8xf32>, tensor<i64>) -> !onnx.Seq<tensor<?x8xf32>>
    %t = "onnx.SplitToSequence"(%x, %n) {axis = 1 : i64} : (tensor<?x8xf32>, tensor<i64>) -> !onnx.Seq<tensor<?x?xf32>>
    %u = "onnx.SequenceConstruct"(%x) : (tensor<?x8xf32>) -> !onnx.Seq<tensor<?x8xf32>>
    %0 = "onnx.SequenceAt"(%s, %zero) : (!onnx.Seq<tensor<?x8xf32>>, tensor<i64>) -> tensor<?x8xf32>
    %1 = "onnx.SequenceAt"(%t, %zero) : (!onnx.Seq<tensor<?x?xf32>>, tensor<i64>) -> tensor<?x?xf32>
    %2 = "onnx.SequenceAt"(%u, %two) : (!onnx.Seq<tensor<?x8xf32>>, tensor<i64>) -> tensor<?x8xf32>
    return %0, %1, %1, %2 : tensor<?x8xf32>, tensor<?x?xf32>, tensor<?x?xf32>, tensor<?x8xf32>
  }
}
