// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// A transposition takes the split along.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<4x4xf32>
// CHECK-SAME: -> {{.*}}tensor<4x4xf32>
// CHECK-NEXT: [[TRANSPOSE:%\w+]] = "onnx.Transpose"([[X]]) {perm = array<i64: 1, 0>} : (tensor<4x4xf32>) -> tensor<4x4xf32>
// CHECK-NEXT: return [[TRANSPOSE]] : tensor<4x4xf32>
#columns = #topt.layout<@mesh, ["S(1)"]>
#rows = #topt.layout<@mesh, ["S(0)"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x", topt.layout = #columns}) -> (tensor<8x4xf32> {topt.name = "y", topt.layout = #rows}) {
    %0 = "onnx.Transpose"(%x) {perm = array<i64: 1, 0>, topt.strategy = #topt.strategy<[#columns], [#rows]>} : (tensor<4x8xf32>) -> tensor<8x4xf32>
    return %0 : tensor<8x4xf32>
  }
}
