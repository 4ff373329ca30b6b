// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// A split moves from one axis to the other: two of four ranks exchange their parts.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<4x16xf32>
// CHECK-SAME: -> {{.*}}tensor<4x16xf32>
// CHECK-NEXT: [[MOVED:%\w+]] = "topt.collective_permute"([[X]]) {grid_axes = array<i16: 0, 1>, sources = array<i64: 0, 2, 1, 3>} : (tensor<4x16xf32>) -> tensor<4x16xf32>
// CHECK-NEXT: return [[MOVED]] : tensor<4x16xf32>
#from = #topt.layout<@mesh, ["S(0)", "R"]>
#to = #topt.layout<@mesh, ["R", "S(0)"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2x2)
  func.func @main(%x: tensor<8x16xf32> {topt.name = "x", topt.layout = #from}) -> (tensor<8x16xf32> {topt.name = "y", topt.layout = #to}) {
    %0 = "topt.reshard"(%x) {src = #from, dst = #to} : (tensor<8x16xf32>) -> tensor<8x16xf32>
    return %0 : tensor<8x16xf32>
  }
}
