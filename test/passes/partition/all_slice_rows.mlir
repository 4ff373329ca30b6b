// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// A copy on every rank is cut, nothing is sent.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<8x16xf32>
// CHECK-SAME: -> {{.*}}tensor<2x16xf32>
// CHECK-NEXT: [[ALL_SLICE:%\w+]] = shard.all_slice [[X]] on @mesh grid_axes = [0] slice_axis = 0 : tensor<8x16xf32> -> tensor<2x16xf32>
// CHECK-NEXT: return [[ALL_SLICE]] : tensor<2x16xf32>
#from = #topt.layout<@mesh, ["R"]>
#to = #topt.layout<@mesh, ["S(0)"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 4)
  func.func @main(%x: tensor<8x16xf32> {topt.name = "x", topt.layout = #from}) -> (tensor<8x16xf32> {topt.name = "y", topt.layout = #to}) {
    %0 = "topt.reshard"(%x) {src = #from, dst = #to} : (tensor<8x16xf32>) -> tensor<8x16xf32>
    return %0 : tensor<8x16xf32>
  }
}
