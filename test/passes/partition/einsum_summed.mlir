// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// A letter that is summed over.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<4x8x3xf32>
// CHECK-SAME: [[Z:%\w+]]: tensor<4x3x8xf32>
// CHECK-SAME: -> {{.*}}tensor<4x8x8xf32>
// CHECK-NEXT: [[MAT_MUL:%\w+]] = "onnx.MatMul"([[X]], [[Z]]) : (tensor<4x8x3xf32>, tensor<4x3x8xf32>) -> tensor<4x8x8xf32>
// CHECK-NEXT: return [[MAT_MUL]] : tensor<4x8x8xf32>
#split2 = #topt.layout<@mesh, ["S(2)"]>
#columns = #topt.layout<@mesh, ["S(1)"]>
#sums = #topt.layout<@mesh, ["P(sum)"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<4x8x6xf32> {topt.name = "x", topt.layout = #split2}, %z: tensor<4x6x8xf32> {topt.name = "z", topt.layout = #columns}) -> (tensor<4x8x8xf32> {topt.name = "y", topt.layout = #sums}) {
    %0 = "onnx.Einsum"(%x, %z) {equation = "bij,bjk->bik", topt.strategy = #topt.strategy<[#split2, #columns], [#sums]>} : (tensor<4x8x6xf32>, tensor<4x6x8xf32>) -> tensor<4x8x8xf32>
    return %0 : tensor<4x8x8xf32>
  }
}
