// RUN: tensoropt-opt %s -p mark-caches | filecheck %s

// Names say which result is which argument in the next step; sizes must agree but for one.
// CHECK-LABEL: func.func @main
// CHECK-SAME: tensor<1x2x4x8xf32> {topt.cache = "past_key_values.0.key", topt.name = "present.0.key"}
// CHECK-SAME: tensor<1x8x4x2xf32> {topt.name = "present.0.value"}
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%k: tensor<1x2x3x8xf32> {topt.name = "past_key_values.0.key"}, %v: tensor<1x2x3x8xf32> {topt.name = "past_key_values.0.value"}, %n: tensor<1x2x1x8xf32> {topt.name = "new"}) -> (tensor<1x2x4x8xf32> {topt.name = "present.0.key"}, tensor<1x8x4x2xf32> {topt.name = "present.0.value"}) {
    %0 = "onnx.Concat"(%k, %n) {axis = 2 : i64} : (tensor<1x2x3x8xf32>, tensor<1x2x1x8xf32>) -> tensor<1x2x4x8xf32>
    %1 = "onnx.Concat"(%v, %n) {axis = 2 : i64} : (tensor<1x2x3x8xf32>, tensor<1x2x1x8xf32>) -> tensor<1x2x4x8xf32>
    %2 = "onnx.Transpose"(%1) {perm = array<i64: 0, 3, 2, 1>} : (tensor<1x2x4x8xf32>) -> tensor<1x8x4x2xf32>
    return %0, %2 : tensor<1x2x4x8xf32>, tensor<1x8x4x2xf32>
  }
}
