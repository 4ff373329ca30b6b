// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// A linear operation passes partial sums on.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<4x8xf32>
// CHECK-SAME: -> {{.*}}tensor<4x8xf32>
// CHECK-NEXT: [[NEG:%\w+]] = "onnx.Neg"([[X]]) : (tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK-NEXT: return [[NEG]] : tensor<4x8xf32>
#sums = #topt.layout<@mesh, ["P(sum)"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x", topt.layout = #sums}) -> (tensor<4x8xf32> {topt.name = "y", topt.layout = #sums}) {
    %0 = "onnx.Neg"(%x) {topt.strategy = #topt.strategy<[#sums], [#sums]>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    return %0 : tensor<4x8xf32>
  }
}
