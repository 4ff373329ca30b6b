// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// An axis of one rank moves nothing.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<8x8xf32>
// CHECK-SAME: -> {{.*}}tensor<8x8xf32>
// CHECK-NEXT: return [[X]] : tensor<8x8xf32>
#from = #topt.layout<@mesh, ["S(0)", "S(1)"]>
#to = #topt.layout<@mesh, ["R", "S(1)"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 1x2)
  func.func @main(%x: tensor<8x16xf32> {topt.name = "x", topt.layout = #from}) -> (tensor<8x16xf32> {topt.name = "y", topt.layout = #to}) {
    %0 = "topt.reshard"(%x) {src = #from, dst = #to} : (tensor<8x16xf32>) -> tensor<8x16xf32>
    return %0 : tensor<8x16xf32>
  }
}
