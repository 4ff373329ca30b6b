// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// Partial sums become columns of the sum.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<8x16xf32>
// CHECK-SAME: -> {{.*}}tensor<8x4xf32>
// CHECK-NEXT: [[REDUCE_SCATTER:%\w+]] = shard.reduce_scatter [[X]] on @mesh grid_axes = [0] scatter_dim = 1 : tensor<8x16xf32> -> tensor<8x4xf32>
// CHECK-NEXT: return [[REDUCE_SCATTER]] : tensor<8x4xf32>
#from = #topt.layout<@mesh, ["P(sum)"]>
#to = #topt.layout<@mesh, ["S(1)"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 4)
  func.func @main(%x: tensor<8x16xf32> {topt.name = "x", topt.layout = #from}) -> (tensor<8x16xf32> {topt.name = "y", topt.layout = #to}) {
    %0 = "topt.reshard"(%x) {src = #from, dst = #to} : (tensor<8x16xf32>) -> tensor<8x16xf32>
    return %0 : tensor<8x16xf32>
  }
}
