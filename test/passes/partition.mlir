// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// A product split along its inner dimension: partial sums pass through the addition of the bias,
// which is kept on one rank and zero on the other, and are reduced once, before the nonlinearity.

// CHECK: shard.grid @mesh(shape = 2x2)
// CHECK: func.func @main([[ARG0:%\w+]]: tensor<4x8xf32> {topt.layout = #topt.layout<@mesh, ["S(0)", "S(1)"]>, topt.name = "x"}
// CHECK-SAME: [[ARG1:%\w+]]: tensor<8x32xf32> {topt.layout = #topt.layout<@mesh, ["R", "S(0)"]>, topt.name = "w", topt.param}
// CHECK-SAME: -> (tensor<4x16xf32> {topt.layout = #topt.layout<@mesh, ["S(0)", "S(1)"]>, topt.name = "y"})
// CHECK-NEXT: [[MAT_MUL:%\w+]] = "onnx.MatMul"([[ARG0]], [[ARG1]]) : (tensor<4x8xf32>, tensor<8x32xf32>) -> tensor<4x32xf32>
// CHECK-NEXT: [[CONSTANT:%\w+]] = "onnx.Constant"() {value = dense<0.000000e+00> : tensor<f32>}
// CHECK-NEXT: [[AXIS_CONSTANT:%\w+]] = "topt.axis_constant"() {axes = array<i64: 1>, values = dense<[true, false]> : tensor<2xi1>}
// CHECK-NEXT: [[WHERE:%\w+]] = "onnx.Where"([[AXIS_CONSTANT]], [[ARG2:%\w+]], [[CONSTANT]])
// CHECK-NEXT: [[ADD:%\w+]] = "onnx.Add"([[MAT_MUL]], [[WHERE]]) : (tensor<4x32xf32>, tensor<32xf32>) -> tensor<4x32xf32>
// CHECK-NEXT: [[ALL_REDUCE:%\w+]] = shard.all_reduce [[ADD]] on @mesh grid_axes = [1]
// CHECK-NEXT: [[RELU:%\w+]] = "onnx.Relu"([[ALL_REDUCE]])
// CHECK-NEXT: [[ALL_SLICE:%\w+]] = shard.all_slice [[RELU]] on @mesh grid_axes = [1] slice_axis = 1 : tensor<4x32xf32> -> tensor<4x16xf32>
// CHECK-NEXT: return [[ALL_SLICE]]
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2x2)
  func.func @main(
      %x: tensor<8x16xf32> {topt.name = "x", topt.layout = #topt.layout<@mesh, ["S(0)", "S(1)"]>},
      %w: tensor<16x32xf32> {topt.name = "w", topt.param, topt.layout = #topt.layout<@mesh, ["R", "S(0)"]>},
      %b: tensor<32xf32> {topt.name = "b", topt.param, topt.layout = #topt.layout<@mesh, ["R", "R"]>})
      -> (tensor<8x32xf32> {topt.name = "y", topt.layout = #topt.layout<@mesh, ["S(0)", "S(1)"]>}) {
    %0 = "onnx.MatMul"(%x, %w) {topt.strategy = #topt.strategy<[#topt.layout<@mesh, ["S(0)", "S(1)"]>, #topt.layout<@mesh, ["R", "S(0)"]>], [#topt.layout<@mesh, ["S(0)", "P(sum)"]>]>} : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32> loc("product")
    %1 = "topt.reshard"(%b) {src = #topt.layout<@mesh, ["R", "R"]>, dst = #topt.layout<@mesh, ["R", "P(sum)"]>} : (tensor<32xf32>) -> tensor<32xf32> loc("bias")
    %2 = "onnx.Add"(%0, %1) {topt.strategy = #topt.strategy<[#topt.layout<@mesh, ["S(0)", "P(sum)"]>, #topt.layout<@mesh, ["R", "P(sum)"]>], [#topt.layout<@mesh, ["S(0)", "P(sum)"]>]>} : (tensor<8x32xf32>, tensor<32xf32>) -> tensor<8x32xf32> loc("bias")
    %3 = "topt.reshard"(%2) {src = #topt.layout<@mesh, ["S(0)", "P(sum)"]>, dst = #topt.layout<@mesh, ["S(0)", "R"]>} : (tensor<8x32xf32>) -> tensor<8x32xf32> loc("act")
    %4 = "onnx.Relu"(%3) {topt.strategy = #topt.strategy<[#topt.layout<@mesh, ["S(0)", "R"]>], [#topt.layout<@mesh, ["S(0)", "R"]>]>} : (tensor<8x32xf32>) -> tensor<8x32xf32> loc("act")
    %5 = "topt.reshard"(%4) {src = #topt.layout<@mesh, ["S(0)", "R"]>, dst = #topt.layout<@mesh, ["S(0)", "S(1)"]>} : (tensor<8x32xf32>) -> tensor<8x32xf32>
    return %5 : tensor<8x32xf32>
  }
}
