// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// Normalisation over another dimension is local.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<2x8xf32>
// CHECK-SAME: [[G:%\w+]]: tensor<8xf32>
// CHECK-SAME: -> {{.*}}tensor<2x8xf32>
// CHECK-NEXT: [[LAYER_NORMALIZATION:%\w+]] = "onnx.LayerNormalization"([[X]], [[G]]) {axis = -1 : i64} : (tensor<2x8xf32>, tensor<8xf32>) -> tensor<2x8xf32>
// CHECK-NEXT: return [[LAYER_NORMALIZATION]] : tensor<2x8xf32>
#rows = #topt.layout<@mesh, ["S(0)"]>
#whole = #topt.layout<@mesh, ["R"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x", topt.layout = #rows}, %g: tensor<8xf32> {topt.name = "g", topt.param, topt.layout = #whole}) -> (tensor<4x8xf32> {topt.name = "y", topt.layout = #rows}) {
    %0 = "onnx.LayerNormalization"(%x, %g) {axis = -1 : i64, topt.strategy = #topt.strategy<[#rows, #whole], [#rows]>} : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
    return %0 : tensor<4x8xf32>
  }
}
