// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// A product is linear: of partial sums it makes partial sums.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<4x8xf32>
// CHECK-SAME: [[W:%\w+]]: tensor<8x6xf32>
// CHECK-SAME: -> {{.*}}tensor<4x6xf32>
// CHECK-NEXT: [[MAT_MUL:%\w+]] = "onnx.MatMul"([[X]], [[W]]) : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
// CHECK-NEXT: return [[MAT_MUL]] : tensor<4x6xf32>
#sums = #topt.layout<@mesh, ["P(sum)"]>
#whole = #topt.layout<@mesh, ["R"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x", topt.layout = #sums}, %w: tensor<8x6xf32> {topt.name = "w", topt.param, topt.layout = #whole}) -> (tensor<4x6xf32> {topt.name = "y", topt.layout = #sums}) {
    %0 = "onnx.MatMul"(%x, %w) {topt.strategy = #topt.strategy<[#sums, #whole], [#sums]>} : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
    return %0 : tensor<4x6xf32>
  }
}
