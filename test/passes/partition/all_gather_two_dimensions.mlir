// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// Each dimension is joined over its own axis.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<4x8xf32>
// CHECK-SAME: -> {{.*}}tensor<8x16xf32>
// CHECK-NEXT: [[ALL_GATHER:%\w+]] = shard.all_gather [[X]] on @mesh grid_axes = [0] gather_axis = 0 : tensor<4x8xf32> -> tensor<8x8xf32>
// CHECK-NEXT: [[ALL_GATHER_2:%\w+]] = shard.all_gather [[ALL_GATHER]] on @mesh grid_axes = [1] gather_axis = 1 : tensor<8x8xf32> -> tensor<8x16xf32>
// CHECK-NEXT: return [[ALL_GATHER_2]] : tensor<8x16xf32>
#from = #topt.layout<@mesh, ["S(0)", "S(1)"]>
#to = #topt.layout<@mesh, ["R", "R"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2x2)
  func.func @main(%x: tensor<8x16xf32> {topt.name = "x", topt.layout = #from}) -> (tensor<8x16xf32> {topt.name = "y", topt.layout = #to}) {
    %0 = "topt.reshard"(%x) {src = #from, dst = #to} : (tensor<8x16xf32>) -> tensor<8x16xf32>
    return %0 : tensor<8x16xf32>
  }
}
