// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// ONNX Runtime has no Pad for bfloat16: the received edges are padded in float32.

// CHECK: [[EDGES:%\w+]] = "topt.collective_permute"({{.*}} -> tensor<2x4x1x8xbf16>
// CHECK: [[WIDE:%\w+]] = "onnx.Cast"([[EDGES]]) {to = 1 : i64}
// CHECK: [[PAD:%\w+]] = "onnx.Pad"([[WIDE]], {{.*}} -> tensor<2x4x2x8xf32>
// CHECK-NEXT: "onnx.Cast"([[PAD]]) {to = 16 : i64}
// CHECK: "onnx.Conv"({{.*}} -> tensor<2x6x4x8xbf16>

#split2 = #topt.layout<@mesh, ["S(2)"]>
#whole = #topt.layout<@mesh, ["R"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<2x4x8x8xbf16> {topt.name = "x", topt.layout = #split2}, %w: tensor<6x4x3x3xbf16> {topt.name = "w", topt.param, topt.layout = #whole}) -> (tensor<2x6x8x8xbf16> {topt.name = "y", topt.layout = #split2}) {
    %0 = "onnx.Conv"(%x, %w) {kernel_shape = array<i64: 3, 3>, pads = array<i64: 1, 1, 1, 1>, topt.strategy = #topt.strategy<[#split2, #whole], [#split2]>} : (tensor<2x4x8x8xbf16>, tensor<6x4x3x3xbf16>) -> tensor<2x6x8x8xbf16>
    return %0 : tensor<2x6x8x8xbf16>
  }
}
