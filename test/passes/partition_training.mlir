// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// All that a rank runs for the update is marked, collectives and slices among it, so that it can be
// a graph of its own.

// CHECK: [[IDENTITY:%\w+]] = "onnx.Identity"([[ARG1:%\w+]]) {topt.gradient_of = "w", topt.phase = "backward"}
// CHECK-NEXT: [[ALL_SLICE:%\w+]] = shard.all_slice [[ARG0:%\w+]] on @mesh grid_axes = [0] slice_axis = 0 {topt.phase = "update"}
// CHECK-NEXT: [[SUB:%\w+]] = "onnx.Sub"([[ALL_SLICE]], [[IDENTITY]]) {topt.phase = "update"}
// CHECK-NEXT: [[ALL_GATHER:%\w+]] = shard.all_gather [[SUB]] on @mesh grid_axes = [0] gather_axis = 0 {topt.phase = "update"}
// CHECK-NEXT: return [[ALL_GATHER]]
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(
      %w: tensor<8xf32> {topt.name = "w", topt.state = "parameter", topt.layout = #topt.layout<@mesh, ["R"]>},
      %g: tensor<8xf32> {topt.name = "g", topt.layout = #topt.layout<@mesh, ["S(0)"]>})
      -> (tensor<8xf32> {topt.name = "w.new", topt.updates = "w", topt.layout = #topt.layout<@mesh, ["R"]>}) {
    %0 = "onnx.Identity"(%g) {topt.phase = "backward", topt.gradient_of = "w", topt.strategy = #topt.strategy<[#topt.layout<@mesh, ["S(0)"]>], [#topt.layout<@mesh, ["S(0)"]>]>} : (tensor<8xf32>) -> tensor<8xf32>
    %1 = "topt.reshard"(%w) {src = #topt.layout<@mesh, ["R"]>, dst = #topt.layout<@mesh, ["S(0)"]>, topt.phase = "update"} : (tensor<8xf32>) -> tensor<8xf32>
    %2 = "onnx.Sub"(%1, %0) {topt.phase = "update", topt.strategy = #topt.strategy<[#topt.layout<@mesh, ["S(0)"]>, #topt.layout<@mesh, ["S(0)"]>], [#topt.layout<@mesh, ["S(0)"]>]>} : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    %3 = "topt.reshard"(%2) {src = #topt.layout<@mesh, ["S(0)"]>, dst = #topt.layout<@mesh, ["R"]>, topt.phase = "update"} : (tensor<8xf32>) -> tensor<8xf32>
    return %3 : tensor<8xf32>
  }
}
