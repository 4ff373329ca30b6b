// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// What is broadcast along the split dimension is whole.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<2x8xf32>
// CHECK-SAME: [[B:%\w+]]: tensor<8xf32>
// CHECK-SAME: -> {{.*}}tensor<2x8xf32>
// CHECK-NEXT: [[ADD:%\w+]] = "onnx.Add"([[X]], [[B]]) : (tensor<2x8xf32>, tensor<8xf32>) -> tensor<2x8xf32>
// CHECK-NEXT: return [[ADD]] : tensor<2x8xf32>
#rows = #topt.layout<@mesh, ["S(0)"]>
#whole = #topt.layout<@mesh, ["R"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x", topt.layout = #rows}, %b: tensor<8xf32> {topt.name = "b", topt.layout = #whole}) -> (tensor<4x8xf32> {topt.name = "y", topt.layout = #rows}) {
    %0 = "onnx.Add"(%x, %b) {topt.strategy = #topt.strategy<[#rows, #whole], [#rows]>} : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
    return %0 : tensor<4x8xf32>
  }
}
