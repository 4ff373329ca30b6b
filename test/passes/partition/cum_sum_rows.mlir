// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// A running sum over another dimension is local.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<2x8xf32>
// CHECK-SAME: -> {{.*}}tensor<2x8xf32>
// CHECK-NEXT: [[CONSTANT:%\w+]] = "onnx.Constant"() {value = dense<1> : tensor<i64>} : () -> tensor<i64>
// CHECK-NEXT: [[CUM_SUM:%\w+]] = "onnx.CumSum"([[X]], [[CONSTANT]]) : (tensor<2x8xf32>, tensor<i64>) -> tensor<2x8xf32>
// CHECK-NEXT: return [[CUM_SUM]] : tensor<2x8xf32>
#rows = #topt.layout<@mesh, ["S(0)"]>
#whole = #topt.layout<@mesh, ["R"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x", topt.layout = #rows}) -> (tensor<4x8xf32> {topt.name = "y", topt.layout = #rows}) {
    %a = "onnx.Constant"() {topt.strategy = #topt.strategy<[], [#whole]>, value = dense<1> : tensor<i64>} : () -> tensor<i64>
    %0 = "onnx.CumSum"(%x, %a) {topt.strategy = #topt.strategy<[#rows, #whole], [#rows]>} : (tensor<4x8xf32>, tensor<i64>) -> tensor<4x8xf32>
    return %0 : tensor<4x8xf32>
  }
}
