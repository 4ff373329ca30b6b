// RUN: tensoropt-opt %s -p 'build-training-step{loss=output:l optimizer=sgd},add-rules,recompute{policy=blocks}' | filecheck %s

// The clones of a block wait for the gradient that arrives at it; the last block saves its values.
// CHECK: topt.opset = {ai.onnx = 20 : i64, tensoropt = 1 : i64}
// CHECK-SAME: recompute = "blocks"
// CHECK: %[[Y:.*]] = "onnx.Mul"({{.*}}topt.id = 11 : i64, topt.phase = "forward"
// CHECK: %[[DY:.*]] = "onnx.Gemm"({{.*}}topt.follows = 15
// CHECK: %[[BARRIER:.*]] = "onnx.tensoropt.Barrier"(%[[Y]], %[[DY]]) {topt.follows = 11 : i64, topt.id = {{[0-9]+}} : i64, topt.phase = "recompute", topt.rule
// CHECK-NEXT: %[[M:.*]] = "onnx.MatMul"(%[[BARRIER]], %arg3) {{.*}}topt.follows = 12 : i64, {{.*}}topt.phase = "recompute", topt.repeats = 12 : i64
// CHECK-NEXT: %[[S:.*]] = "onnx.Sigmoid"(%[[M]]) {{.*}}topt.follows = 13 : i64, {{.*}}topt.repeats = 13 : i64
// CHECK-NEXT: "onnx.Mul"(%[[DY]], %[[S]]) {{.*}}topt.phase = "backward"
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x"}, %w0: tensor<8x8xf32> {topt.name = "w0", topt.param}, %w1: tensor<8x8xf32> {topt.name = "w1", topt.param}, %w2: tensor<8x8xf32> {topt.name = "w2", topt.param}, %w3: tensor<8x8xf32> {topt.name = "w3", topt.param}) -> (tensor<f32> {topt.name = "l"}) {
    %m0 = "onnx.MatMul"(%x, %w0) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %s0 = "onnx.Sigmoid"(%m0) : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %y0 = "onnx.Mul"(%m0, %s0) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
    %m1 = "onnx.MatMul"(%y0, %w1) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %s1 = "onnx.Sigmoid"(%m1) : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %y1 = "onnx.Mul"(%m1, %s1) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
    %m2 = "onnx.MatMul"(%y1, %w2) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %s2 = "onnx.Sigmoid"(%m2) : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %y2 = "onnx.Mul"(%m2, %s2) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
    %m3 = "onnx.MatMul"(%y2, %w3) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %s3 = "onnx.Sigmoid"(%m3) : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %y3 = "onnx.Mul"(%m3, %s3) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
    %l = "onnx.ReduceSum"(%y3) {keepdims = 0 : i64} : (tensor<4x8xf32>) -> tensor<f32>
    return %l : tensor<f32>
  }
}
