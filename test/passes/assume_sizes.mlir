// RUN: tensoropt-opt %s -p assume-sizes --split-input-file | filecheck %s

// Of a range the middle and the end are noted, and what divides all of its sizes. Sizes that follow
// have names where inference tells them; what has no range is 1.
// CHECK-LABEL: func.func @main
// CHECK-SAME: tensor<?x?x8xf32, #topt.sizes<["batch mean=4 end=8 step=2", "past mean=2 end=4 step=1", ""]>>
// CHECK-SAME: -> (tensor<?x?x8xf32, #topt.sizes<["batch mean=4 end=8 step=2", "mean=3 end=5 step=1", ""]>>
module attributes {topt.opset = {ai.onnx = 20 : i64}, topt.ranges = {batch = "2..8:2", past = "1..4"}} {
  func.func @main(%x: tensor<?x?x8xf32> {topt.name = "x", topt.dims = ["batch", "past", ""]}, %n: tensor<?x?x8xf32> {topt.name = "n", topt.dims = ["batch", "new", ""]}) -> (tensor<?x?x8xf32> {topt.name = "y"}) {
    // CHECK-NEXT: "onnx.Concat"
    %0 = "onnx.Concat"(%x, %n) {axis = 1 : i64} : (tensor<?x?x8xf32>, tensor<?x?x8xf32>) -> tensor<?x?x8xf32>
    return %0 : tensor<?x?x8xf32>
  }
}

// -----

// Shapes that the model computes are found by computing them.
// CHECK-LABEL: func.func @main
// CHECK-SAME: -> (tensor<?xf32, #topt.sizes<["mean=24 end=48 step=1"]>>
module attributes {topt.opset = {ai.onnx = 20 : i64}, topt.ranges = {batch = "2..8:2"}} {
  func.func @main(%x: tensor<?x6xf32> {topt.name = "x", topt.dims = ["batch", ""]}) -> (tensor<?xf32> {topt.name = "y"}) {
    %0 = "onnx.Size"(%x) : (tensor<?x6xf32>) -> tensor<i64>
    %1 = "onnx.Constant"() {value = dense<-1> : tensor<1xi64>} : () -> tensor<1xi64>
    %2 = "onnx.Reshape"(%0, %1) : (tensor<i64>, tensor<1xi64>) -> tensor<1xi64>
    // CHECK: "onnx.ConstantOfShape"
    %3 = "onnx.ConstantOfShape"(%2) : (tensor<1xi64>) -> tensor<?xf32>
    return %3 : tensor<?xf32>
  }
}

// -----

// Before opset 10 a part of an open dimension cannot be taken: it stays whole.
// CHECK-LABEL: func.func @main
// CHECK-SAME: #topt.sizes<["batch mean=4 end=8 step=1", ""]>
module attributes {topt.opset = {ai.onnx = 9 : i64}, topt.ranges = {batch = "2..8:2"}} {
  func.func @main(%x: tensor<?x6xf32> {topt.name = "x", topt.dims = ["batch", ""]}) -> (tensor<?x6xf32> {topt.name = "y"}) {
    %0 = "onnx.Relu"(%x) : (tensor<?x6xf32>) -> tensor<?x6xf32>
    return %0 : tensor<?x6xf32>
  }
}

// -----

// Where some of a sum is known, what is not counts as 1 beside it, and nothing of it is split.
// CHECK-LABEL: func.func @main
// CHECK-SAME: -> (tensor<?x8xf32, #topt.sizes<["mean=14 end=14 step=1", ""]>>
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<?x8xf32> {topt.name = "x", topt.dims = ["12 + new", ""]}, %n: tensor<?x8xf32> {topt.name = "n", topt.dims = ["new", ""]}) -> (tensor<?x8xf32> {topt.name = "y"}) {
    %0 = "onnx.Concat"(%x, %n) {axis = 0 : i64} : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
    return %0 : tensor<?x8xf32>
  }
}
