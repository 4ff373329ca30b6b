// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// Attention with keys that travel: in each turn, the rank has keys of another place, and joins the
// results by their logarithms. The keys of the next turn are sent before the attention of a turn.

// CHECK: func.func @main([[Q:%\w+]]: tensor<1x2x4x3xf32>
// CHECK-SAME: [[K:%\w+]]: tensor<1x1x4x3xf32>
// CHECK-SAME: [[V:%\w+]]: tensor<1x1x4x3xf32>
// CHECK: [[ROW:%\w+]] = "topt.axis_constant"() {axes = array<i64: 0>, values = dense<{{\[\[}}0], [4]]> : tensor<2x1xi64>}
// CHECK: [[K2:%\w+]] = "topt.collective_permute"([[K]]) {grid_axes = array<i16: 0>, sources = array<i64: 1, 0>}
// CHECK-NEXT: [[V2:%\w+]] = "topt.collective_permute"([[V]])
// CHECK: [[OFFSET:%\w+]] = "onnx.Sub"([[ROW]], {{.*}})
// CHECK: [[FIRST:%\w+]]:2 = "onnx.tensoropt.Attention"([[Q]], [[K]], [[V]], {{.*}}, [[OFFSET]]) {causal = 1 : i64, scale = 1.000000e+00 : f32, window = 3 : i64}
// CHECK: [[PLACES:%\w+]] = "topt.axis_constant"() {axes = array<i64: 0>, values = dense<{{\[\[}}4, 5, 6, 7], [0, 1, 2, 3]]> : tensor<2x4xi64>}
// CHECK: [[KEY:%\w+]] = "onnx.Slice"([[PLACES]], {{.*}}) : {{.*}} -> tensor<1xi64>
// CHECK-NEXT: [[OFFSET2:%\w+]] = "onnx.Sub"([[ROW]], [[KEY]])
// CHECK: [[SECOND:%\w+]]:2 = "onnx.tensoropt.Attention"([[Q]], [[K2]], [[V2]], {{.*}}, [[OFFSET2]])
// CHECK: [[SHARE:%\w+]] = "onnx.Sigmoid"
// CHECK: [[MUL:%\w+]] = "onnx.Mul"([[SHARE]], {{.*}})
// CHECK-NEXT: [[Y:%\w+]] = "onnx.Add"([[FIRST]]#0, [[MUL]])
// CHECK: return [[Y]]
#tokens = #topt.layout<@mesh, ["S(2)"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(
      %q: tensor<1x2x8x3xf32> {topt.name = "q", topt.layout = #tokens},
      %k: tensor<1x1x8x3xf32> {topt.name = "k", topt.layout = #tokens},
      %v: tensor<1x1x8x3xf32> {topt.name = "v", topt.layout = #tokens})
      -> (tensor<1x2x8x3xf32> {topt.name = "y", topt.layout = #tokens}) {
    %0:2 = "onnx.tensoropt.Attention"(%q, %k, %v) {causal = 1 : i64, scale = 1.0 : f32, window = 3 : i64, topt.strategy = #topt.strategy<[#tokens, #tokens, #tokens], [#tokens, #tokens]>} : (tensor<1x2x8x3xf32>, tensor<1x1x8x3xf32>, tensor<1x1x8x3xf32>) -> (tensor<1x2x8x3xf32>, tensor<1x2x8xf32>)
    return %0#0 : tensor<1x2x8x3xf32>
  }
}
