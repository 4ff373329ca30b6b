// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// Numbers that are drawn are the same on every rank: they get a seed.

// CHECK: func.func @main
// CHECK-SAME: -> {{.*}}tensor<4x8xf32>
// CHECK-NEXT: [[RANDOM_NORMAL:%\w+]] = "onnx.RandomNormal"() {seed = {{[^ ]+}} : f32, shape = array<i64: 4, 8>} : () -> tensor<4x8xf32>
// CHECK-NEXT: return [[RANDOM_NORMAL]] : tensor<4x8xf32>
#whole = #topt.layout<@mesh, ["R"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main() -> (tensor<4x8xf32> {topt.name = "y", topt.layout = #whole}) {
    %0 = "onnx.RandomNormal"() {shape = array<i64: 4, 8>, topt.strategy = #topt.strategy<[], [#whole]>} : () -> tensor<4x8xf32>
    return %0 : tensor<4x8xf32>
  }
}
