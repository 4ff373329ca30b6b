// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// Rows of the first operand: rows of the product.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<2x8xf32>
// CHECK-SAME: [[W:%\w+]]: tensor<8x6xf32>
// CHECK-SAME: -> {{.*}}tensor<2x6xf32>
// CHECK-NEXT: [[MAT_MUL:%\w+]] = "onnx.MatMul"([[X]], [[W]]) : (tensor<2x8xf32>, tensor<8x6xf32>) -> tensor<2x6xf32>
// CHECK-NEXT: return [[MAT_MUL]] : tensor<2x6xf32>
#rows = #topt.layout<@mesh, ["S(0)"]>
#whole = #topt.layout<@mesh, ["R"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x", topt.layout = #rows}, %w: tensor<8x6xf32> {topt.name = "w", topt.param, topt.layout = #whole}) -> (tensor<4x6xf32> {topt.name = "y", topt.layout = #rows}) {
    %0 = "onnx.MatMul"(%x, %w) {topt.strategy = #topt.strategy<[#rows, #whole], [#rows]>} : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
    return %0 : tensor<4x6xf32>
  }
}
