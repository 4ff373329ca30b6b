// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// Split indices: each rank looks up its own.

// CHECK: func.func @main
// CHECK-SAME: [[W:%\w+]]: tensor<8x6xf32>
// CHECK-SAME: [[I:%\w+]]: tensor<2xi64>
// CHECK-SAME: -> {{.*}}tensor<2x6xf32>
// CHECK-NEXT: [[GATHER:%\w+]] = "onnx.Gather"([[W]], [[I]]) {axis = 0 : i64} : (tensor<8x6xf32>, tensor<2xi64>) -> tensor<2x6xf32>
// CHECK-NEXT: return [[GATHER]] : tensor<2x6xf32>
#whole = #topt.layout<@mesh, ["R"]>
#rows = #topt.layout<@mesh, ["S(0)"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%w: tensor<8x6xf32> {topt.name = "w", topt.param, topt.layout = #whole}, %i: tensor<4xi64> {topt.name = "i", topt.layout = #rows}) -> (tensor<4x6xf32> {topt.name = "y", topt.layout = #rows}) {
    %0 = "onnx.Gather"(%w, %i) {axis = 0 : i64, topt.strategy = #topt.strategy<[#whole, #rows], [#rows]>} : (tensor<8x6xf32>, tensor<4xi64>) -> tensor<4x6xf32>
    return %0 : tensor<4x6xf32>
  }
}
