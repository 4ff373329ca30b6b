// RUN: tensoropt-opt %s -p 'fold-constants,reduce-bags{scatter=true},dce' --split-input-file | filecheck %s

// Bags of one size are reduced along a dimension: the loop of PyTorch's older exporter.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<6xi64> {topt.name = "x"}, %w: tensor<9x4xf32> {topt.name = "w", topt.param}) -> (tensor<3x4xf32> {topt.name = "y"}) {
    // CHECK-NEXT: %[[G:.*]] = "onnx.Gather"([[W:%\w+]], [[X:%\w+]]) {axis = 0 : i64} : (tensor<9x4xf32>, tensor<6xi64>) -> tensor<6x4xf32>
    // CHECK: %[[R:.*]] = "onnx.Reshape"(%[[G]], %{{.*}}) : (tensor<6x4xf32>, tensor<3xi64>) -> tensor<3x2x4xf32>
    // CHECK: %[[S:.*]] = "onnx.ReduceMean"(%[[R]], %{{.*}}) {keepdims = 0 : i64} : (tensor<3x2x4xf32>, tensor<1xi64>) -> tensor<3x4xf32>
    // CHECK-NEXT: return %[[S]]
    %starts = "onnx.Constant"() {value = dense<[0, 2, 4, 6]> : tensor<4xi64>} : () -> tensor<4xi64>
    %ends = "onnx.Constant"() {value = dense<[2, 4, 6]> : tensor<3xi64>} : () -> tensor<3xi64>
    %count = "onnx.Constant"() {value = dense<3> : tensor<i64>} : () -> tensor<i64>
    %true = "onnx.Constant"() {value = dense<true> : tensor<i1>} : () -> tensor<i1>
    %zero = "onnx.Constant"() {value = dense<0> : tensor<1xi64>} : () -> tensor<1xi64>
    %y = "onnx.Loop"(%count, %true) ({
    ^bb0(%i: tensor<i64>, %c: tensor<i1>):
      %0 = "onnx.Gather"(%starts, %i) {axis = 0 : i64} : (tensor<4xi64>, tensor<i64>) -> tensor<i64>
      %1 = "onnx.Gather"(%ends, %i) {axis = 0 : i64} : (tensor<3xi64>, tensor<i64>) -> tensor<i64>
      %2 = "onnx.Unsqueeze"(%0, %zero) : (tensor<i64>, tensor<1xi64>) -> tensor<1xi64>
      %3 = "onnx.Unsqueeze"(%1, %zero) : (tensor<i64>, tensor<1xi64>) -> tensor<1xi64>
      %4 = "onnx.Slice"(%x, %2, %3, %zero) : (tensor<6xi64>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<?xi64>
      %5 = "onnx.Gather"(%w, %4) {axis = 0 : i64} : (tensor<9x4xf32>, tensor<?xi64>) -> tensor<?x4xf32>
      %6 = "onnx.ReduceMean"(%5, %zero) {keepdims = 0 : i64} : (tensor<?x4xf32>, tensor<1xi64>) -> tensor<4xf32>
      "onnx.Yield"(%true, %6) : (tensor<i1>, tensor<4xf32>) -> ()
    }) {topt.regions = ["body"]} : (tensor<i64>, tensor<i1>) -> tensor<3x4xf32>
    return %y : tensor<3x4xf32>
  }
}

// -----

// Other bags are scattered: the loop of the newer exporter, which inserts into a sequence.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%r: tensor<6x4xf32> {topt.name = "r"}, %o: tensor<3xi64> {topt.name = "o"}, %e: tensor<1x4xf32> {topt.name = "e", topt.param}) -> (tensor<3x4xf32> {topt.name = "y"}) {
    // CHECK: %[[O:.*]] = "onnx.Concat"([[ARG1:%\w+]], %{{.*}}) {axis = 0 : i64} : (tensor<3xi64>, tensor<1xi64>) -> tensor<4xi64>
    // CHECK: %[[B:.*]] = "onnx.ScatterElements"(%{{.*}}, %[[O]], %{{.*}}) {axis = 0 : i64, reduction = "add"} : (tensor<7xi64>, tensor<4xi64>, tensor<4xi64>) -> tensor<7xi64>
    // CHECK: "onnx.CumSum"(%[[B]], %{{.*}}) : (tensor<7xi64>, tensor<i64>) -> tensor<7xi64>
    // CHECK: %[[S:.*]] = "onnx.ScatterND"(%{{.*}}, %{{.*}}, [[ARG0:%\w+]]) {reduction = "add"} : (tensor<5x4xf32>, tensor<6x1xi64>, tensor<6x4xf32>) -> tensor<5x4xf32>
    // CHECK: %[[M:.*]] = "onnx.Slice"(%[[S]], %{{.*}}) : (tensor<5x4xf32>, {{.*}}) -> tensor<3x4xf32>
    // CHECK: %[[Y:.*]] = "onnx.Where"(%{{.*}}, %[[M]], [[ARG2:%\w+]]) : (tensor<3x1xi1>, tensor<3x4xf32>, tensor<1x4xf32>) -> tensor<3x4xf32>
    // CHECK-NEXT: return %[[Y]]
    %none = "onnx.NoValue"() : () -> none
    %true = "onnx.Constant"() {value = dense<true> : tensor<i1>} : () -> tensor<i1>
    %first = "onnx.Constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
    %one = "onnx.Constant"() {value = dense<1> : tensor<i64>} : () -> tensor<i64>
    %two = "onnx.Constant"() {value = dense<2> : tensor<i64>} : () -> tensor<i64>
    %count = "onnx.Constant"() {value = dense<3> : tensor<i64>} : () -> tensor<i64>
    %flat = "onnx.Constant"() {value = dense<-1> : tensor<1xi64>} : () -> tensor<1xi64>
    %zero = "onnx.Constant"() {value = dense<0> : tensor<1xi64>} : () -> tensor<1xi64>
    %six = "onnx.Constant"() {value = dense<6> : tensor<1xi64>} : () -> tensor<1xi64>
    %offsets = "onnx.Concat"(%o, %six) {axis = 0 : i64} : (tensor<3xi64>, tensor<1xi64>) -> tensor<4xi64>
    %s = "onnx.SequenceEmpty"() : () -> !onnx.Seq<tensor<1x4xf32>>
    %n, %all = "onnx.Loop"(%none, %true, %first, %s) ({
    ^bb0(%step: tensor<i64>, %c: tensor<i1>, %i: tensor<i64>, %held: !onnx.Seq<tensor<1x4xf32>>):
      %0 = "onnx.Reshape"(%i, %flat) : (tensor<i64>, tensor<1xi64>) -> tensor<1xi64>
      %1 = "onnx.Add"(%0, %one) : (tensor<1xi64>, tensor<i64>) -> tensor<1xi64>
      %2 = "onnx.Add"(%0, %two) : (tensor<1xi64>, tensor<i64>) -> tensor<1xi64>
      %3 = "onnx.Slice"(%offsets, %0, %1) : (tensor<4xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<1xi64>
      %4 = "onnx.Slice"(%offsets, %1, %2) : (tensor<4xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<1xi64>
      %5 = "onnx.Equal"(%3, %4) : (tensor<1xi64>, tensor<1xi64>) -> tensor<1xi1>
      %6 = "onnx.If"(%5) ({
        %10 = "onnx.Slice"(%r, %3, %4) : (tensor<6x4xf32>, tensor<1xi64>, tensor<1xi64>) -> tensor<?x4xf32>
        %11 = "onnx.ReduceSum"(%10, %zero) : (tensor<?x4xf32>, tensor<1xi64>) -> tensor<1x4xf32>
        "onnx.Yield"(%11) : (tensor<1x4xf32>) -> ()
      }, {
        "onnx.Yield"(%e) : (tensor<1x4xf32>) -> ()
      }) {topt.regions = ["else_branch", "then_branch"]} : (tensor<1xi1>) -> tensor<1x4xf32>
      %7 = "onnx.SequenceInsert"(%held, %6) : (!onnx.Seq<tensor<1x4xf32>>, tensor<1x4xf32>) -> !onnx.Seq<tensor<1x4xf32>>
      %8 = "onnx.Add"(%i, %one) : (tensor<i64>, tensor<i64>) -> tensor<i64>
      %9 = "onnx.Less"(%8, %count) : (tensor<i64>, tensor<i64>) -> tensor<i1>
      "onnx.Yield"(%9, %8, %7) : (tensor<i1>, tensor<i64>, !onnx.Seq<tensor<1x4xf32>>) -> ()
    }) {topt.regions = ["body"]} : (none, tensor<i1>, tensor<i64>, !onnx.Seq<tensor<1x4xf32>>) -> (tensor<i64>, !onnx.Seq<tensor<1x4xf32>>)
    %y = "onnx.ConcatFromSequence"(%all) {axis = 0 : i64} : (!onnx.Seq<tensor<1x4xf32>>) -> tensor<3x4xf32>
    return %y : tensor<3x4xf32>
  }
}

// -----

// Rows that do not follow one another, and another reduction: no loop over bags, they stay.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%r: tensor<6x4xf32> {topt.name = "r"}) -> (tensor<3x4xf32> {topt.name = "y"}, tensor<3x4xf32> {topt.name = "z"}) {
    // CHECK-COUNT-2: "onnx.Loop"
    %starts = "onnx.Constant"() {value = dense<[0, 2, 4, 6]> : tensor<4xi64>} : () -> tensor<4xi64>
    %overlap = "onnx.Constant"() {value = dense<[3, 4, 6]> : tensor<3xi64>} : () -> tensor<3xi64>
    %ends = "onnx.Constant"() {value = dense<[2, 4, 6]> : tensor<3xi64>} : () -> tensor<3xi64>
    %count = "onnx.Constant"() {value = dense<3> : tensor<i64>} : () -> tensor<i64>
    %true = "onnx.Constant"() {value = dense<true> : tensor<i1>} : () -> tensor<i1>
    %zero = "onnx.Constant"() {value = dense<0> : tensor<1xi64>} : () -> tensor<1xi64>
    %y = "onnx.Loop"(%count, %true) ({
    ^bb0(%i: tensor<i64>, %c: tensor<i1>):
      %0 = "onnx.Gather"(%starts, %i) {axis = 0 : i64} : (tensor<4xi64>, tensor<i64>) -> tensor<i64>
      %1 = "onnx.Gather"(%overlap, %i) {axis = 0 : i64} : (tensor<3xi64>, tensor<i64>) -> tensor<i64>
      %2 = "onnx.Unsqueeze"(%0, %zero) : (tensor<i64>, tensor<1xi64>) -> tensor<1xi64>
      %3 = "onnx.Unsqueeze"(%1, %zero) : (tensor<i64>, tensor<1xi64>) -> tensor<1xi64>
      %4 = "onnx.Slice"(%r, %2, %3, %zero) : (tensor<6x4xf32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<?x4xf32>
      %5 = "onnx.ReduceSum"(%4, %zero) {keepdims = 0 : i64} : (tensor<?x4xf32>, tensor<1xi64>) -> tensor<4xf32>
      "onnx.Yield"(%true, %5) : (tensor<i1>, tensor<4xf32>) -> ()
    }) {topt.regions = ["body"]} : (tensor<i64>, tensor<i1>) -> tensor<3x4xf32>
    %z = "onnx.Loop"(%count, %true) ({
    ^bb0(%i: tensor<i64>, %c: tensor<i1>):
      %0 = "onnx.Gather"(%starts, %i) {axis = 0 : i64} : (tensor<4xi64>, tensor<i64>) -> tensor<i64>
      %1 = "onnx.Gather"(%ends, %i) {axis = 0 : i64} : (tensor<3xi64>, tensor<i64>) -> tensor<i64>
      %2 = "onnx.Unsqueeze"(%0, %zero) : (tensor<i64>, tensor<1xi64>) -> tensor<1xi64>
      %3 = "onnx.Unsqueeze"(%1, %zero) : (tensor<i64>, tensor<1xi64>) -> tensor<1xi64>
      %4 = "onnx.Slice"(%r, %2, %3, %zero) : (tensor<6x4xf32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<?x4xf32>
      %5 = "onnx.ReduceProd"(%4, %zero) {keepdims = 0 : i64} : (tensor<?x4xf32>, tensor<1xi64>) -> tensor<4xf32>
      "onnx.Yield"(%true, %5) : (tensor<i1>, tensor<4xf32>) -> ()
    }) {topt.regions = ["body"]} : (tensor<i64>, tensor<i1>) -> tensor<3x4xf32>
    return %y, %z : tensor<3x4xf32>, tensor<3x4xf32>
  }
}
