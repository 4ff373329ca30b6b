// RUN: tensoropt-opt %s -p 'simplify{keep-dropout=true}' | filecheck %s

// A training step is about to be built: dropout stays, other operations go.
// CHECK: %[[d:.*]] = "onnx.Dropout"(%[[x:.*]]) {ratio = 5.000000e-01 : f32}
// CHECK-NEXT: return %[[d]]
module attributes {topt.opset = {ai.onnx = 9 : i64}} {
  func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %i = "onnx.Identity"(%x) : (tensor<4xf32>) -> tensor<4xf32>
    %d = "onnx.Dropout"(%i) {ratio = 0.5 : f32} : (tensor<4xf32>) -> tensor<4xf32>
    return %d : tensor<4xf32>
  }
}
