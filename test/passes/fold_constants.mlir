// RUN: tensoropt-opt %s -p fold-constants --split-input-file | filecheck %s

// The shape of a static tensor, and the arithmetic on it, become one literal; the shapes that
// depend on it become static.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<4x32x8xf32> {topt.name = "x"}) -> (tensor<?x?xf32> {topt.name = "y"}) {
    %0 = "onnx.Shape"(%x) : (tensor<4x32x8xf32>) -> tensor<3xi64>
    %i = "onnx.Constant"() {value = dense<0> : tensor<1xi64>} : () -> tensor<1xi64>
    %m = "onnx.Constant"() {value = dense<-1> : tensor<1xi64>} : () -> tensor<1xi64>
    %1 = "onnx.Gather"(%0, %i) : (tensor<3xi64>, tensor<1xi64>) -> tensor<1xi64>
    %2 = "onnx.Mul"(%1, %1) : (tensor<1xi64>, tensor<1xi64>) -> tensor<1xi64>
    %3 = "onnx.Concat"(%2, %m) {axis = 0 : i64} : (tensor<1xi64>, tensor<1xi64>) -> tensor<2xi64>
    // CHECK: %[[SHAPE:.*]] = "onnx.Constant"() {value = dense<[16, -1]> : tensor<2xi64>}
    // CHECK-NEXT: %[[Y:.*]] = "onnx.Reshape"([[ARG0:%\w+]], %[[SHAPE]]) : (tensor<4x32x8xf32>, tensor<2xi64>) -> tensor<16x64xf32>
    // CHECK-NEXT: return %[[Y]] : tensor<16x64xf32>
    %4 = "onnx.Reshape"(%x, %3) : (tensor<4x32x8xf32>, tensor<2xi64>) -> tensor<?x?xf32>
    return %4 : tensor<?x?xf32>
  }
}

// -----

// Exporters write 1 in the place of each -1 in a list of sizes, of which none is negative.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<?x4x1xf32> {topt.name = "x"}) -> (tensor<?x?x?xf32> {topt.name = "y"}) {
    // CHECK: %[[SHAPE:.*]] = "onnx.Shape"
    %0 = "onnx.Shape"(%x) {end = 1 : i64} : (tensor<?x4x1xf32>) -> tensor<1xi64>
    %c = "onnx.Constant"() {value = dense<[4, 2]> : tensor<2xi64>} : () -> tensor<2xi64>
    // CHECK: %[[SIZES:.*]] = "onnx.Concat"(%[[SHAPE]]
    %1 = "onnx.Concat"(%0, %c) {axis = 0 : i64} : (tensor<1xi64>, tensor<2xi64>) -> tensor<3xi64>
    %m = "onnx.Constant"() {value = dense<-1> : tensor<1xi64>} : () -> tensor<1xi64>
    // CHECK-NOT: "onnx.Reshape"
    %2 = "onnx.Reshape"(%1, %m) : (tensor<3xi64>, tensor<1xi64>) -> tensor<3xi64>
    %o = "onnx.Constant"() {value = dense<1> : tensor<3xi64>} : () -> tensor<3xi64>
    %n = "onnx.Constant"() {value = dense<-1> : tensor<3xi64>} : () -> tensor<3xi64>
    %3 = "onnx.Equal"(%2, %n) : (tensor<3xi64>, tensor<3xi64>) -> tensor<3xi1>
    // CHECK-NOT: "onnx.Where"
    %4 = "onnx.Where"(%3, %o, %2) : (tensor<3xi1>, tensor<3xi64>, tensor<3xi64>) -> tensor<3xi64>
    // CHECK: "onnx.Expand"([[ARG0:%\w+]], %[[SIZES]]) : (tensor<?x4x1xf32>, tensor<3xi64>) -> tensor<?x4x2xf32>
    %5 = "onnx.Expand"(%x, %4) : (tensor<?x4x1xf32>, tensor<3xi64>) -> tensor<?x?x?xf32>
    return %5 : tensor<?x?x?xf32>
  }
}

// -----

// A 0 stays a possible size, and so does what the operand of a Where is.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<?x4xf32> {topt.name = "x"}) -> (tensor<1xi64> {topt.name = "y"}) {
    %0 = "onnx.Shape"(%x) {end = 1 : i64} : (tensor<?x4xf32>) -> tensor<1xi64>
    %z = "onnx.Constant"() {value = dense<0> : tensor<1xi64>} : () -> tensor<1xi64>
    %o = "onnx.Constant"() {value = dense<1> : tensor<1xi64>} : () -> tensor<1xi64>
    // CHECK: "onnx.Equal"
    %1 = "onnx.Equal"(%0, %z) : (tensor<1xi64>, tensor<1xi64>) -> tensor<1xi1>
    // CHECK: "onnx.Where"
    %2 = "onnx.Where"(%1, %o, %0) : (tensor<1xi1>, tensor<1xi64>, tensor<1xi64>) -> tensor<1xi64>
    return %2 : tensor<1xi64>
  }
}

// -----

// Of a shape that is not known whole, what takes known sizes alone.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<?x32x8xf32> {topt.name = "x"}) -> (tensor<i64> {topt.name = "a"}, tensor<2xi64> {topt.name = "b"}, tensor<i64> {topt.name = "c"}) {
    %0 = "onnx.Shape"(%x) : (tensor<?x32x8xf32>) -> tensor<3xi64>
    %i = "onnx.Constant"() {value = dense<-1> : tensor<i64>} : () -> tensor<i64>
    %z = "onnx.Constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
    %o = "onnx.Constant"() {value = dense<1> : tensor<1xi64>} : () -> tensor<1xi64>
    %e = "onnx.Constant"() {value = dense<3> : tensor<1xi64>} : () -> tensor<1xi64>
    // CHECK-DAG: %[[A:.*]] = "onnx.Constant"() {value = dense<8> : tensor<i64>}
    %1 = "onnx.Gather"(%0, %i) : (tensor<3xi64>, tensor<i64>) -> tensor<i64>
    // CHECK-DAG: %[[B:.*]] = "onnx.Constant"() {value = dense<[32, 8]> : tensor<2xi64>}
    %2 = "onnx.Slice"(%0, %o, %e) : (tensor<3xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<2xi64>
    // CHECK-DAG: %[[C:.*]] = "onnx.Gather"
    %3 = "onnx.Gather"(%0, %z) : (tensor<3xi64>, tensor<i64>) -> tensor<i64>
    // CHECK: return %[[A]], %[[B]], %[[C]]
    return %1, %2, %3 : tensor<i64>, tensor<2xi64>, tensor<i64>
  }
}

// -----

// A range has a known length only once its limit is known: a second round folds it.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<4x32xf32> {topt.name = "x"}) -> (tensor<?xi1> {topt.name = "y"}) {
    %i = "onnx.Constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
    %o = "onnx.Constant"() {value = dense<1> : tensor<i64>} : () -> tensor<i64>
    %0 = "onnx.Shape"(%x) {end = 1 : i64} : (tensor<4x32xf32>) -> tensor<1xi64>
    %1 = "onnx.Squeeze"(%0) : (tensor<1xi64>) -> tensor<i64>
    %2 = "onnx.Range"(%i, %1, %o) : (tensor<i64>, tensor<i64>, tensor<i64>) -> tensor<?xi64>
    %3 = "onnx.Less"(%2, %o) : (tensor<?xi64>, tensor<i64>) -> tensor<?xi1>
    // CHECK: %[[Y:.*]] = "onnx.Constant"() {value = dense<[true, false, false, false]> : tensor<4xi1>}
    // CHECK: return %[[Y]] : tensor<4xi1>
    return %3 : tensor<?xi1>
  }
}

// -----

// Only the dimensions that are asked for must be known.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<?x32xf32> {topt.dims = ["n", ""], topt.name = "x"}) -> (tensor<1xi64> {topt.name = "a"}, tensor<1xi64> {topt.name = "b"}) {
    // CHECK-NEXT: %[[A:.*]] = "onnx.Constant"() {value = dense<32> : tensor<1xi64>}
    %0 = "onnx.Shape"(%x) {start = -1 : i64} : (tensor<?x32xf32>) -> tensor<1xi64>
    // CHECK-NEXT: %[[B:.*]] = "onnx.Shape"([[ARG0:%\w+]]) {end = 1 : i64}
    %1 = "onnx.Shape"(%x) {end = 1 : i64} : (tensor<?x32xf32>) -> tensor<1xi64>
    // CHECK-NEXT: return %[[A]], %[[B]]
    return %0, %1 : tensor<1xi64>, tensor<1xi64>
  }
}

// -----

// Weights made from a shape stay, as do literals that would be large.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main() -> (tensor<3x3xf32> {topt.name = "w"}, tensor<1xf32> {topt.name = "b"}, tensor<5000xi64> {topt.name = "r"}) {
    %s = "onnx.Constant"() {value = dense<3> : tensor<2xi64>} : () -> tensor<2xi64>
    %i = "onnx.Constant"() {value = dense<1> : tensor<1xi64>} : () -> tensor<1xi64>
    %l = "onnx.Constant"() {value = dense<5000> : tensor<1xi64>} : () -> tensor<1xi64>
    // CHECK: %[[W:.*]] = "onnx.ConstantOfShape"({{.*}}) {value = dense<2.000000e-02> : tensor<1xf32>}
    %0 = "onnx.ConstantOfShape"(%s) {value = dense<0.02> : tensor<1xf32>} : (tensor<2xi64>) -> tensor<3x3xf32>
    // CHECK-NEXT: %[[B:.*]] = "onnx.ConstantOfShape"
    %1 = "onnx.ConstantOfShape"(%i) {value = dense<0.02> : tensor<1xf32>} : (tensor<1xi64>) -> tensor<1xf32>
    // CHECK-NEXT: %[[R:.*]] = "onnx.Expand"
    %2 = "onnx.Expand"(%i, %l) : (tensor<1xi64>, tensor<1xi64>) -> tensor<5000xi64>
    // CHECK-NEXT: return %[[W]], %[[B]], %[[R]]
    return %0, %1, %2 : tensor<3x3xf32>, tensor<1xf32>, tensor<5000xi64>
  }
}

// -----

// A single number is folded whatever its type; what depends on an input is not.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<64xf32> {topt.name = "x"}) -> (tensor<64xf32> {topt.name = "y"}) {
    %0 = "onnx.Size"(%x) : (tensor<64xf32>) -> tensor<i64>
    %1 = "onnx.Cast"(%0) {to = 1 : i64} : (tensor<i64>) -> tensor<f32>
    %2 = "onnx.Sqrt"(%1) : (tensor<f32>) -> tensor<f32>
    // CHECK: %[[ROOT:.*]] = "onnx.Constant"() {value = dense<8.000000e+00> : tensor<f32>}
    // CHECK-NEXT: "onnx.Div"([[ARG0:%\w+]], %[[ROOT]])
    %3 = "onnx.Div"(%x, %2) : (tensor<64xf32>, tensor<f32>) -> tensor<64xf32>
    return %3 : tensor<64xf32>
  }
}

// -----

// One operation that cannot be computed does not keep the others from it.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main() -> (tensor<i64> {topt.name = "a"}, tensor<i64> {topt.name = "b"}) {
    %v = "onnx.Constant"() {value = dense<[4, 5]> : tensor<2xi64>} : () -> tensor<2xi64>
    %far = "onnx.Constant"() {value = dense<7> : tensor<i64>} : () -> tensor<i64>
    %one = "onnx.Constant"() {value = dense<1> : tensor<i64>} : () -> tensor<i64>
    // CHECK: %[[A:.*]] = "onnx.Gather"
    %0 = "onnx.Gather"(%v, %far) : (tensor<2xi64>, tensor<i64>) -> tensor<i64>
    // CHECK: %[[B:.*]] = "onnx.Constant"() {value = dense<5> : tensor<i64>}
    %1 = "onnx.Gather"(%v, %one) : (tensor<2xi64>, tensor<i64>) -> tensor<i64>
    // CHECK: return %[[A]], %[[B]]
    return %0, %1 : tensor<i64>, tensor<i64>
  }
}

// -----

// An If with a literal condition is its branch, inside of another one too, whose condition follows.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<4xf32> {topt.name = "x"}) -> (tensor<4xf32> {topt.name = "y"}, tensor<4xf32> {topt.name = "z"}) {
    // CHECK: %[[N:.*]] = "onnx.Neg"([[X:%\w+]])
    // CHECK-NEXT: onnx.Constant
    // CHECK-NEXT: %[[A:.*]] = "onnx.Abs"(%[[N]])
    // CHECK-NEXT: return %[[A]], [[X]]
    %two = "onnx.Constant"() {value = dense<2> : tensor<i64>} : () -> tensor<i64>
    %four = "onnx.Constant"() {value = dense<4> : tensor<i64>} : () -> tensor<i64>
    %less = "onnx.Less"(%two, %four) : (tensor<i64>, tensor<i64>) -> tensor<i1>
    %0, %1 = "onnx.If"(%less) ({
      %5 = "onnx.Exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
      "onnx.Yield"(%5, %5) : (tensor<4xf32>, tensor<4xf32>) -> ()
    }, {
      %2 = "onnx.Neg"(%x) : (tensor<4xf32>) -> tensor<4xf32>
      %3 = "onnx.Equal"(%two, %four) : (tensor<i64>, tensor<i64>) -> tensor<i1>
      %4 = "onnx.If"(%3) ({
        %6 = "onnx.Abs"(%2) : (tensor<4xf32>) -> tensor<4xf32>
        "onnx.Yield"(%6) : (tensor<4xf32>) -> ()
      }, {
        "onnx.Yield"(%2) : (tensor<4xf32>) -> ()
      }) {topt.regions = ["else_branch", "then_branch"]} : (tensor<i1>) -> tensor<4xf32>
      "onnx.Yield"(%4, %x) : (tensor<4xf32>, tensor<4xf32>) -> ()
    }) {topt.regions = ["else_branch", "then_branch"]} : (tensor<i1>) -> (tensor<4xf32>, tensor<4xf32>)
    return %0, %1 : tensor<4xf32>, tensor<4xf32>
  }
}
