// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// And back.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<8x4xf32>
// CHECK-SAME: -> {{.*}}tensor<2x16xf32>
// CHECK-NEXT: [[ALL_TO_ALL:%\w+]] = shard.all_to_all [[X]] on @mesh grid_axes = [0] split_axis = 0 concat_axis = 1 : tensor<8x4xf32> -> tensor<2x16xf32>
// CHECK-NEXT: return [[ALL_TO_ALL]] : tensor<2x16xf32>
#from = #topt.layout<@mesh, ["S(1)"]>
#to = #topt.layout<@mesh, ["S(0)"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 4)
  func.func @main(%x: tensor<8x16xf32> {topt.name = "x", topt.layout = #from}) -> (tensor<8x16xf32> {topt.name = "y", topt.layout = #to}) {
    %0 = "topt.reshard"(%x) {src = #from, dst = #to} : (tensor<8x16xf32>) -> tensor<8x16xf32>
    return %0 : tensor<8x16xf32>
  }
}
