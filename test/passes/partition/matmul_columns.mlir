// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// Columns of the second operand: columns of the product.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<4x8xf32>
// CHECK-SAME: [[W:%\w+]]: tensor<8x3xf32>
// CHECK-SAME: -> {{.*}}tensor<4x3xf32>
// CHECK-NEXT: [[MAT_MUL:%\w+]] = "onnx.MatMul"([[X]], [[W]]) : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
// CHECK-NEXT: return [[MAT_MUL]] : tensor<4x3xf32>
#whole = #topt.layout<@mesh, ["R"]>
#columns = #topt.layout<@mesh, ["S(1)"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x", topt.layout = #whole}, %w: tensor<8x6xf32> {topt.name = "w", topt.param, topt.layout = #columns}) -> (tensor<4x6xf32> {topt.name = "y", topt.layout = #columns}) {
    %0 = "onnx.MatMul"(%x, %w) {topt.strategy = #topt.strategy<[#whole, #columns], [#columns]>} : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
    return %0 : tensor<4x6xf32>
  }
}
