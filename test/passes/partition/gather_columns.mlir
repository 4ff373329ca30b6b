// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// Rows of a table that is split by columns.

// CHECK: func.func @main
// CHECK-SAME: [[W:%\w+]]: tensor<8x3xf32>
// CHECK-SAME: [[I:%\w+]]: tensor<4xi64>
// CHECK-SAME: -> {{.*}}tensor<4x3xf32>
// CHECK-NEXT: [[GATHER:%\w+]] = "onnx.Gather"([[W]], [[I]]) {axis = 0 : i64} : (tensor<8x3xf32>, tensor<4xi64>) -> tensor<4x3xf32>
// CHECK-NEXT: return [[GATHER]] : tensor<4x3xf32>
#columns = #topt.layout<@mesh, ["S(1)"]>
#whole = #topt.layout<@mesh, ["R"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%w: tensor<8x6xf32> {topt.name = "w", topt.param, topt.layout = #columns}, %i: tensor<4xi64> {topt.name = "i", topt.layout = #whole}) -> (tensor<4x6xf32> {topt.name = "y", topt.layout = #columns}) {
    %0 = "onnx.Gather"(%w, %i) {axis = 0 : i64, topt.strategy = #topt.strategy<[#columns, #whole], [#columns]>} : (tensor<8x6xf32>, tensor<4xi64>) -> tensor<4x6xf32>
    return %0 : tensor<4x6xf32>
  }
}
