// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// Elementwise operations are local.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<4x4xf32>
// CHECK-SAME: [[B:%\w+]]: tensor<4x4xf32>
// CHECK-SAME: -> {{.*}}tensor<4x4xf32>
// CHECK-NEXT: [[ADD:%\w+]] = "onnx.Add"([[X]], [[B]]) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
// CHECK-NEXT: return [[ADD]] : tensor<4x4xf32>
#columns = #topt.layout<@mesh, ["S(1)"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x", topt.layout = #columns}, %b: tensor<4x8xf32> {topt.name = "b", topt.layout = #columns}) -> (tensor<4x8xf32> {topt.name = "y", topt.layout = #columns}) {
    %0 = "onnx.Add"(%x, %b) {topt.strategy = #topt.strategy<[#columns, #columns], [#columns]>} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
    return %0 : tensor<4x8xf32>
  }
}
