// RUN: tensoropt-opt %s -p insert-reshards | filecheck %s

// A reshard belongs to the phase of the op that it is for. Results of the backward pass are moved in
// it, before the gradients that the update reads; results of the update after it.

// CHECK: [[MUL:%\w+]] = "onnx.Mul"([[ARG0:%\w+]], [[ARG1:%\w+]])
// CHECK-NEXT: [[RESHARD:%\w+]] = "topt.reshard"([[MUL]]) {dst = #topt.layout<@mesh, ["S(0)"]>, src = #topt.layout<@mesh, ["P(sum)"]>, topt.phase = "backward"}
// CHECK-NEXT: [[RESHARD_2:%\w+]] = "topt.reshard"([[MUL]]) {dst = #topt.layout<@mesh, ["R"]>, src = #topt.layout<@mesh, ["P(sum)"]>, topt.phase = "backward"}
// CHECK-NEXT: [[IDENTITY:%\w+]] = "onnx.Identity"([[RESHARD]])
// CHECK-NEXT: [[RESHARD_3:%\w+]] = "topt.reshard"([[ARG1]]) {dst = #topt.layout<@mesh, ["S(0)"]>, src = #topt.layout<@mesh, ["R"]>, topt.phase = "update"}
// CHECK-NEXT: [[SUB:%\w+]] = "onnx.Sub"([[RESHARD_3]], [[IDENTITY]])
// CHECK-NEXT: [[RESHARD_4:%\w+]] = "topt.reshard"([[SUB]]) {dst = #topt.layout<@mesh, ["R"]>, src = #topt.layout<@mesh, ["S(0)"]>}
// CHECK-NEXT: return [[RESHARD_2]], [[RESHARD_4]]
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(
      %x: tensor<8xf32> {topt.name = "x", topt.layout = #topt.layout<@mesh, ["R"]>},
      %w: tensor<8xf32> {topt.name = "w", topt.state = "parameter", topt.layout = #topt.layout<@mesh, ["R"]>})
      -> (tensor<8xf32> {topt.name = "sum", topt.layout = #topt.layout<@mesh, ["R"]>},
          tensor<8xf32> {topt.name = "w.new", topt.updates = "w", topt.layout = #topt.layout<@mesh, ["R"]>}) {
    %0 = "onnx.Mul"(%x, %w) {topt.phase = "backward", topt.strategy = #topt.strategy<[#topt.layout<@mesh, ["R"]>, #topt.layout<@mesh, ["R"]>], [#topt.layout<@mesh, ["P(sum)"]>]>} : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    %1 = "onnx.Identity"(%0) {topt.phase = "backward", topt.gradient_of = "w", topt.strategy = #topt.strategy<[#topt.layout<@mesh, ["S(0)"]>], [#topt.layout<@mesh, ["S(0)"]>]>} : (tensor<8xf32>) -> tensor<8xf32>
    %2 = "onnx.Sub"(%w, %1) {topt.phase = "update", topt.strategy = #topt.strategy<[#topt.layout<@mesh, ["S(0)"]>, #topt.layout<@mesh, ["S(0)"]>], [#topt.layout<@mesh, ["S(0)"]>]>} : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    return %0, %2 : tensor<8xf32>, tensor<8xf32>
  }
}
