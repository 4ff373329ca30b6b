// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// Each axis cuts a dimension of its own.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<8x16xf32>
// CHECK-SAME: -> {{.*}}tensor<4x8xf32>
// CHECK-NEXT: [[ALL_SLICE:%\w+]] = shard.all_slice [[X]] on @mesh grid_axes = [1] slice_axis = 1 : tensor<8x16xf32> -> tensor<8x8xf32>
// CHECK-NEXT: [[ALL_SLICE_2:%\w+]] = shard.all_slice [[ALL_SLICE]] on @mesh grid_axes = [0] slice_axis = 0 : tensor<8x8xf32> -> tensor<4x8xf32>
// CHECK-NEXT: return [[ALL_SLICE_2]] : tensor<4x8xf32>
#from = #topt.layout<@mesh, ["R", "R"]>
#to = #topt.layout<@mesh, ["S(0)", "S(1)"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2x2)
  func.func @main(%x: tensor<8x16xf32> {topt.name = "x", topt.layout = #from}) -> (tensor<8x16xf32> {topt.name = "y", topt.layout = #to}) {
    %0 = "topt.reshard"(%x) {src = #from, dst = #to} : (tensor<8x16xf32>) -> tensor<8x16xf32>
    return %0 : tensor<8x16xf32>
  }
}
