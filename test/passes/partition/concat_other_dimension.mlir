// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// Joining along a whole dimension is local.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<2x8xf32>
// CHECK-SAME: [[Z:%\w+]]: tensor<2x8xf32>
// CHECK-SAME: -> {{.*}}tensor<2x16xf32>
// CHECK-NEXT: [[CONCAT:%\w+]] = "onnx.Concat"([[X]], [[Z]]) {axis = 1 : i64} : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x16xf32>
// CHECK-NEXT: return [[CONCAT]] : tensor<2x16xf32>
#rows = #topt.layout<@mesh, ["S(0)"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x", topt.layout = #rows}, %z: tensor<4x8xf32> {topt.name = "z", topt.layout = #rows}) -> (tensor<4x16xf32> {topt.name = "y", topt.layout = #rows}) {
    %0 = "onnx.Concat"(%x, %z) {axis = 1 : i64, topt.strategy = #topt.strategy<[#rows, #rows], [#rows]>} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x16xf32>
    return %0 : tensor<4x16xf32>
  }
}
