// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// Tokens and experts: tokens travel to the ranks of their experts, and the results back.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<4x8xf32>
// CHECK-SAME: [[UP:%\w+]]: tensor<2x16x8xf32>
// CHECK-SAME: [[DOWN:%\w+]]: tensor<2x8x16xf32>
// CHECK: [[ROUTES:%\w+]] = "onnx.Concat"({{.*}}) {axis = 1 : i64} : (tensor<4x2xf32>, tensor<4x2xf32>) -> tensor<4x4xf32>
// CHECK-NEXT: shard.all_gather [[ROUTES]] on @mesh grid_axes = [0] gather_axis = 0 : tensor<4x4xf32> -> tensor<8x4xf32>
// CHECK: [[SENT:%\w+]] = "onnx.Gather"([[X]], {{.*}}) {axis = 0 : i64} : (tensor<4x8xf32>, tensor<?xi64>) -> tensor<?x8xf32>
// CHECK-NEXT: "topt.all_to_all_rows"([[SENT]], {{.*}}) {grid_axes = array<i16: 0>} : (tensor<?x8xf32>, tensor<2x2xi64>) -> tensor<?x8xf32>
// CHECK: "onnx.com.microsoft.MoE"({{.*}}, [[UP]], {{.*}}, [[DOWN]], {{.*}}) {{.*}}k = 1 : i64{{.*}} : (tensor<?x8xf32>, tensor<?x2xf32>, tensor<2x16x8xf32>, none, tensor<2x8x16xf32>, none) -> tensor<?x8xf32>
// CHECK: "topt.all_to_all_rows"({{.*}}) {grid_axes = array<i16: 0>} : (tensor<?x8xf32>, tensor<2x2xi64>) -> tensor<?x8xf32>
// CHECK: return {{.*}} : tensor<4x8xf32>
#split = #topt.layout<@mesh, ["S(0)"]>
#whole = #topt.layout<@mesh, ["R"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64, com.microsoft = 1 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<8x8xf32> {topt.name = "x", topt.layout = #split}, %scores: tensor<8x4xf32> {topt.name = "scores", topt.layout = #split}, %up: tensor<4x16x8xf32> {topt.name = "up", topt.param, topt.layout = #split}, %down: tensor<4x8x16xf32> {topt.name = "down", topt.param, topt.layout = #split}) -> (tensor<8x8xf32> {topt.name = "y", topt.layout = #split}) {
    %no = "onnx.NoValue"() {topt.strategy = #topt.strategy<[], [#whole]>} : () -> none
    %0 = "onnx.com.microsoft.MoE"(%x, %scores, %up, %no, %down, %no) {k = 2 : i64, topt.strategy = #topt.strategy<[#split, #split, #split, #whole, #split, #whole], [#split]>} : (tensor<8x8xf32>, tensor<8x4xf32>, tensor<4x16x8xf32>, none, tensor<4x8x16xf32>, none) -> tensor<8x8xf32>
    return %0 : tensor<8x8xf32>
  }
}
