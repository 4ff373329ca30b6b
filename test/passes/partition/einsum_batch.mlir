// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// A letter of all operands.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<2x8x6xf32>
// CHECK-SAME: [[Z:%\w+]]: tensor<2x6x8xf32>
// CHECK-SAME: -> {{.*}}tensor<2x8x8xf32>
// CHECK-NEXT: [[MAT_MUL:%\w+]] = "onnx.MatMul"([[X]], [[Z]]) : (tensor<2x8x6xf32>, tensor<2x6x8xf32>) -> tensor<2x8x8xf32>
// CHECK-NEXT: return [[MAT_MUL]] : tensor<2x8x8xf32>
#rows = #topt.layout<@mesh, ["S(0)"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<4x8x6xf32> {topt.name = "x", topt.layout = #rows}, %z: tensor<4x6x8xf32> {topt.name = "z", topt.layout = #rows}) -> (tensor<4x8x8xf32> {topt.name = "y", topt.layout = #rows}) {
    %0 = "onnx.Einsum"(%x, %z) {equation = "bij,bjk->bik", topt.strategy = #topt.strategy<[#rows, #rows], [#rows]>} : (tensor<4x8x6xf32>, tensor<4x6x8xf32>) -> tensor<4x8x8xf32>
    return %0 : tensor<4x8x8xf32>
  }
}
