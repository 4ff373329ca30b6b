// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// The inner dimension: every rank has a partial sum.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<4x4xf32>
// CHECK-SAME: [[W:%\w+]]: tensor<4x6xf32>
// CHECK-SAME: -> {{.*}}tensor<4x6xf32>
// CHECK-NEXT: [[MAT_MUL:%\w+]] = "onnx.MatMul"([[X]], [[W]]) : (tensor<4x4xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
// CHECK-NEXT: return [[MAT_MUL]] : tensor<4x6xf32>
#columns = #topt.layout<@mesh, ["S(1)"]>
#rows = #topt.layout<@mesh, ["S(0)"]>
#sums = #topt.layout<@mesh, ["P(sum)"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x", topt.layout = #columns}, %w: tensor<8x6xf32> {topt.name = "w", topt.param, topt.layout = #rows}) -> (tensor<4x6xf32> {topt.name = "y", topt.layout = #sums}) {
    %0 = "onnx.MatMul"(%x, %w) {topt.strategy = #topt.strategy<[#columns, #rows], [#sums]>} : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
    return %0 : tensor<4x6xf32>
  }
}
