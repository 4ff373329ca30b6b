// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// Over another dimension it is local.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<2x8xf32>
// CHECK-SAME: -> {{.*}}tensor<2xi64>
// CHECK-NEXT: [[ARG_MAX:%\w+]] = "onnx.ArgMax"([[X]]) {axis = 1 : i64, keepdims = 0 : i64} : (tensor<2x8xf32>) -> tensor<2xi64>
// CHECK-NEXT: return [[ARG_MAX]] : tensor<2xi64>
#rows = #topt.layout<@mesh, ["S(0)"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x", topt.layout = #rows}) -> (tensor<4xi64> {topt.name = "y", topt.layout = #rows}) {
    %0 = "onnx.ArgMax"(%x) {axis = 1 : i64, keepdims = 0 : i64, topt.strategy = #topt.strategy<[#rows], [#rows]>} : (tensor<4x8xf32>) -> tensor<4xi64>
    return %0 : tensor<4xi64>
  }
}
