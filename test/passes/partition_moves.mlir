// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// Every kind of move along one axis.

module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 4)
  func.func @main(%x: tensor<8x16xf32> {topt.name = "x", topt.layout = #topt.layout<@mesh, ["S(0)"]>}) -> (tensor<8x16xf32> {topt.name = "y", topt.layout = #topt.layout<@mesh, ["S(1)"]>}) {
    // CHECK: [[ALL_TO_ALL:%\w+]] = shard.all_to_all [[ARG0:%\w+]] on @mesh grid_axes = [0] split_axis = 1 concat_axis = 0 : tensor<2x16xf32> -> tensor<8x4xf32>
    %0 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["S(0)"]>, dst = #topt.layout<@mesh, ["S(1)"]>} : (tensor<8x16xf32>) -> tensor<8x16xf32>
    // CHECK-NEXT: [[ALL_GATHER:%\w+]] = shard.all_gather [[ALL_TO_ALL]] on @mesh grid_axes = [0] gather_axis = 1 : tensor<8x4xf32> -> tensor<8x16xf32>
    %1 = "topt.reshard"(%0) {src = #topt.layout<@mesh, ["S(1)"]>, dst = #topt.layout<@mesh, ["R"]>} : (tensor<8x16xf32>) -> tensor<8x16xf32>
    // A copy on every rank is a partial maximum already.
    // CHECK-NEXT: [[ALL_REDUCE:%\w+]] = shard.all_reduce [[ALL_GATHER]] on @mesh grid_axes = [0] reduction = max
    %2 = "topt.reshard"(%1) {src = #topt.layout<@mesh, ["R"]>, dst = #topt.layout<@mesh, ["P(max)"]>} : (tensor<8x16xf32>) -> tensor<8x16xf32>
    %3 = "topt.reshard"(%2) {src = #topt.layout<@mesh, ["P(max)"]>, dst = #topt.layout<@mesh, ["R"]>} : (tensor<8x16xf32>) -> tensor<8x16xf32>
    // CHECK: "topt.axis_constant"() {axes = array<i64: 0>, values = dense<[true, false, false, false]>
    // CHECK: [[REDUCE_SCATTER:%\w+]] = shard.reduce_scatter {{.*}} on @mesh grid_axes = [0] scatter_dim = 1 : tensor<8x16xf32> -> tensor<8x4xf32>
    %4 = "topt.reshard"(%3) {src = #topt.layout<@mesh, ["R"]>, dst = #topt.layout<@mesh, ["P(sum)"]>} : (tensor<8x16xf32>) -> tensor<8x16xf32>
    %5 = "topt.reshard"(%4) {src = #topt.layout<@mesh, ["P(sum)"]>, dst = #topt.layout<@mesh, ["S(1)"]>} : (tensor<8x16xf32>) -> tensor<8x16xf32>
    // CHECK-NEXT: return [[REDUCE_SCATTER]]
    return %5 : tensor<8x16xf32>
  }
}
