// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// A softmax over another dimension than the split one is local.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<2x8xf32>
// CHECK-SAME: -> {{.*}}tensor<2x8xf32>
// CHECK-NEXT: [[SOFTMAX:%\w+]] = "onnx.Softmax"([[X]]) {axis = -1 : i64} : (tensor<2x8xf32>) -> tensor<2x8xf32>
// CHECK-NEXT: return [[SOFTMAX]] : tensor<2x8xf32>
#rows = #topt.layout<@mesh, ["S(0)"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x", topt.layout = #rows}) -> (tensor<4x8xf32> {topt.name = "y", topt.layout = #rows}) {
    %0 = "onnx.Softmax"(%x) {axis = -1 : i64, topt.strategy = #topt.strategy<[#rows], [#rows]>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    return %0 : tensor<4x8xf32>
  }
}
