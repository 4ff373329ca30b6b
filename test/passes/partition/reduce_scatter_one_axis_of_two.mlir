// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// The rows that the other axis splits stay where they are.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<4x16xf32>
// CHECK-SAME: -> {{.*}}tensor<4x8xf32>
// CHECK-NEXT: [[REDUCE_SCATTER:%\w+]] = shard.reduce_scatter [[X]] on @mesh grid_axes = [1] scatter_dim = 1 : tensor<4x16xf32> -> tensor<4x8xf32>
// CHECK-NEXT: return [[REDUCE_SCATTER]] : tensor<4x8xf32>
#from = #topt.layout<@mesh, ["S(0)", "P(sum)"]>
#to = #topt.layout<@mesh, ["S(0)", "S(1)"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2x2)
  func.func @main(%x: tensor<8x16xf32> {topt.name = "x", topt.layout = #from}) -> (tensor<8x16xf32> {topt.name = "y", topt.layout = #to}) {
    %0 = "topt.reshard"(%x) {src = #from, dst = #to} : (tensor<8x16xf32>) -> tensor<8x16xf32>
    return %0 : tensor<8x16xf32>
  }
}
