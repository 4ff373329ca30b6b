// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// Four heads of queries, and one of keys and of values: each of two ranks has two and a copy of both.
// Constant indices slice them, and leave the copies out after an exchange or a gather.

module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<8x6xf32> {topt.name = "x", topt.layout = #topt.layout<@mesh, ["R"]>}) -> (tensor<8x6xf32> {topt.name = "y", topt.layout = #topt.layout<@mesh, ["R"]>}) {
    // CHECK: [[OWN:%\w+]] = "topt.axis_constant"
    // CHECK-SAME: dense<{{\[\[}}0, 1, 4, 5], [2, 3, 4, 5]]>
    // CHECK-NEXT: [[PART:%\w+]] = "onnx.Gather"(%{{.*}}, [[OWN]])
    // CHECK-SAME: -> tensor<8x4xf32>
    %0 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["R"]>, dst = #topt.layout<@mesh, ["S(1 of 4+1+1 in 4+1+1)"]>} : (tensor<8x6xf32>) -> tensor<8x6xf32>
    // CHECK-NEXT: [[ROWS:%\w+]] = shard.all_to_all [[PART]] on @mesh grid_axes = [0] split_axis = 0 concat_axis = 1 : tensor<8x4xf32> -> tensor<4x8xf32>
    // CHECK: dense<[0, 1, 4, 5, 2, 3]>
    // CHECK-NEXT: "onnx.Gather"([[ROWS]]
    // CHECK-SAME: -> tensor<4x6xf32>
    %1 = "topt.reshard"(%0) {src = #topt.layout<@mesh, ["S(1 of 4+1+1 in 4+1+1)"]>, dst = #topt.layout<@mesh, ["S(0)"]>} : (tensor<8x6xf32>) -> tensor<8x6xf32>
    // CHECK: shard.all_gather
    // CHECK-SAME: tensor<4x6xf32> -> tensor<8x6xf32>
    // CHECK: dense<{{\[\[}}0, 1, 4, 5], [2, 3, 4, 5]]>
    %2 = "topt.reshard"(%1) {src = #topt.layout<@mesh, ["S(0)"]>, dst = #topt.layout<@mesh, ["S(1 of 4+1+1 in 4+1+1)"]>} : (tensor<8x6xf32>) -> tensor<8x6xf32>
    // CHECK: shard.all_gather
    // CHECK-SAME: tensor<8x4xf32> -> tensor<8x8xf32>
    // CHECK: "onnx.Gather"
    // CHECK-SAME: -> tensor<8x6xf32>
    %3 = "topt.reshard"(%2) {src = #topt.layout<@mesh, ["S(1 of 4+1+1 in 4+1+1)"]>, dst = #topt.layout<@mesh, ["R"]>} : (tensor<8x6xf32>) -> tensor<8x6xf32>
    return %3 : tensor<8x6xf32>
  }
}
