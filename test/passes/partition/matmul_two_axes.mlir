// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// Rows over one axis, columns over the other.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<2x8xf32>
// CHECK-SAME: [[W:%\w+]]: tensor<8x3xf32>
// CHECK-SAME: -> {{.*}}tensor<2x3xf32>
// CHECK-NEXT: [[MAT_MUL:%\w+]] = "onnx.MatMul"([[X]], [[W]]) : (tensor<2x8xf32>, tensor<8x3xf32>) -> tensor<2x3xf32>
// CHECK-NEXT: return [[MAT_MUL]] : tensor<2x3xf32>
#rows_whole = #topt.layout<@mesh, ["S(0)", "R"]>
#whole_columns = #topt.layout<@mesh, ["R", "S(1)"]>
#rows_columns = #topt.layout<@mesh, ["S(0)", "S(1)"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2x2)
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x", topt.layout = #rows_whole}, %w: tensor<8x6xf32> {topt.name = "w", topt.param, topt.layout = #whole_columns}) -> (tensor<4x6xf32> {topt.name = "y", topt.layout = #rows_columns}) {
    %0 = "onnx.MatMul"(%x, %w) {topt.strategy = #topt.strategy<[#rows_whole, #whole_columns], [#rows_columns]>} : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
    return %0 : tensor<4x6xf32>
  }
}
