// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// Five units of four points on two ranks are parts of three units, and the last one is padding.

module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<8x20xf32> {topt.name = "x", topt.layout = #topt.layout<@mesh, ["R"]>}) -> (tensor<8x20xf32> {topt.name = "y", topt.layout = #topt.layout<@mesh, ["S(0)"]>}) {
    // CHECK: [[PADDED:%\w+]] = "onnx.Pad"
    // CHECK-SAME: -> tensor<8x24xf32>
    // CHECK-NEXT: [[PART:%\w+]] = shard.all_slice [[PADDED]] on @mesh grid_axes = [0] slice_axis = 1 : tensor<8x24xf32> -> tensor<8x12xf32>
    %0 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["R"]>, dst = #topt.layout<@mesh, ["S(1 in 5)"]>} : (tensor<8x20xf32>) -> tensor<8x20xf32>
    // CHECK-NEXT: [[ROWS:%\w+]] = shard.all_to_all [[PART]] on @mesh grid_axes = [0] split_axis = 0 concat_axis = 1 : tensor<8x12xf32> -> tensor<4x24xf32>
    // CHECK: "onnx.Slice"([[ROWS]]
    // CHECK-SAME: -> tensor<4x20xf32>
    %1 = "topt.reshard"(%0) {src = #topt.layout<@mesh, ["S(1 in 5)"]>, dst = #topt.layout<@mesh, ["S(0)"]>} : (tensor<8x20xf32>) -> tensor<8x20xf32>
    return %1 : tensor<8x20xf32>
  }
}
