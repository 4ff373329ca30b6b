// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// An operation of one operand keeps its layout.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<4x4xf32>
// CHECK-SAME: -> {{.*}}tensor<4x4xf32>
// CHECK-NEXT: [[RELU:%\w+]] = "onnx.Relu"([[X]]) : (tensor<4x4xf32>) -> tensor<4x4xf32>
// CHECK-NEXT: return [[RELU]] : tensor<4x4xf32>
#columns = #topt.layout<@mesh, ["S(1)"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x", topt.layout = #columns}) -> (tensor<4x8xf32> {topt.name = "y", topt.layout = #columns}) {
    %0 = "onnx.Relu"(%x) {topt.strategy = #topt.strategy<[#columns], [#columns]>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    return %0 : tensor<4x8xf32>
  }
}
