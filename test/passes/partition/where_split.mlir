// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// A choice is elementwise.

// CHECK: func.func @main
// CHECK-SAME: [[K:%\w+]]: tensor<2x8xi1>
// CHECK-SAME: [[X:%\w+]]: tensor<2x8xf32>
// CHECK-SAME: [[Z:%\w+]]: tensor<2x8xf32>
// CHECK-SAME: -> {{.*}}tensor<2x8xf32>
// CHECK-NEXT: [[WHERE:%\w+]] = "onnx.Where"([[K]], [[X]], [[Z]]) : (tensor<2x8xi1>, tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
// CHECK-NEXT: return [[WHERE]] : tensor<2x8xf32>
#rows = #topt.layout<@mesh, ["S(0)"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%k: tensor<4x8xi1> {topt.name = "k", topt.layout = #rows}, %x: tensor<4x8xf32> {topt.name = "x", topt.layout = #rows}, %z: tensor<4x8xf32> {topt.name = "z", topt.layout = #rows}) -> (tensor<4x8xf32> {topt.name = "y", topt.layout = #rows}) {
    %0 = "onnx.Where"(%k, %x, %z) {topt.strategy = #topt.strategy<[#rows, #rows, #rows], [#rows]>} : (tensor<4x8xi1>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
    return %0 : tensor<4x8xf32>
  }
}
