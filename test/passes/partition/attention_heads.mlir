// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// Heads are computed apart.

// CHECK: func.func @main
// CHECK-SAME: [[Q:%\w+]]: tensor<2x2x8x16xf32>
// CHECK-SAME: [[K:%\w+]]: tensor<2x2x8x16xf32>
// CHECK-SAME: [[V:%\w+]]: tensor<2x2x8x16xf32>
// CHECK-SAME: -> {{.*}}tensor<2x2x8x16xf32>
// CHECK-NEXT: [[ATTENTION:%\w+]] = "onnx.Attention"([[Q]], [[K]], [[V]]) : (tensor<2x2x8x16xf32>, tensor<2x2x8x16xf32>, tensor<2x2x8x16xf32>) -> tensor<2x2x8x16xf32>
// CHECK-NEXT: return [[ATTENTION]] : tensor<2x2x8x16xf32>
#columns = #topt.layout<@mesh, ["S(1)"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 23 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%q: tensor<2x4x8x16xf32> {topt.name = "q", topt.layout = #columns}, %k: tensor<2x4x8x16xf32> {topt.name = "k", topt.layout = #columns}, %v: tensor<2x4x8x16xf32> {topt.name = "v", topt.layout = #columns}) -> (tensor<2x4x8x16xf32> {topt.name = "y", topt.layout = #columns}) {
    %0 = "onnx.Attention"(%q, %k, %v) {topt.strategy = #topt.strategy<[#columns, #columns, #columns], [#columns]>} : (tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
    return %0 : tensor<2x4x8x16xf32>
  }
}
