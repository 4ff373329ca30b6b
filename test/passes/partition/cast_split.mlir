// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// A change of type is local.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<2x8xf32>
// CHECK-SAME: -> {{.*}}tensor<2x8xf16>
// CHECK-NEXT: [[CAST:%\w+]] = "onnx.Cast"([[X]]) {to = 10 : i64} : (tensor<2x8xf32>) -> tensor<2x8xf16>
// CHECK-NEXT: return [[CAST]] : tensor<2x8xf16>
#rows = #topt.layout<@mesh, ["S(0)"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x", topt.layout = #rows}) -> (tensor<4x8xf16> {topt.name = "y", topt.layout = #rows}) {
    %0 = "onnx.Cast"(%x) {to = 10 : i64, topt.strategy = #topt.strategy<[#rows], [#rows]>} : (tensor<4x8xf32>) -> tensor<4x8xf16>
    return %0 : tensor<4x8xf16>
  }
}
