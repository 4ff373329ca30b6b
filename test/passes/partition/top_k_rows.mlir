// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// The largest of each row.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<2x8xf32>
// CHECK-SAME: -> {{.*}}tensor<2x3xf32>
// CHECK-NEXT: [[CONSTANT:%\w+]] = "onnx.Constant"() {value = dense<3> : tensor<1xi64>} : () -> tensor<1xi64>
// CHECK-NEXT: [[TOP_K:%\w+]]:2 = "onnx.TopK"([[X]], [[CONSTANT]]) : (tensor<2x8xf32>, tensor<1xi64>) -> (tensor<2x3xf32>, tensor<2x3xi64>)
// CHECK-NEXT: return [[TOP_K]]#0 : tensor<2x3xf32>
#rows = #topt.layout<@mesh, ["S(0)"]>
#whole = #topt.layout<@mesh, ["R"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x", topt.layout = #rows}) -> (tensor<4x3xf32> {topt.name = "y", topt.layout = #rows}) {
    %k = "onnx.Constant"() {topt.strategy = #topt.strategy<[], [#whole]>, value = dense<3> : tensor<1xi64>} : () -> tensor<1xi64>
    %0:2 = "onnx.TopK"(%x, %k) {topt.strategy = #topt.strategy<[#rows, #whole], [#rows, #rows]>} : (tensor<4x8xf32>, tensor<1xi64>) -> (tensor<4x3xf32>, tensor<4x3xi64>)
    return %0#0 : tensor<4x3xf32>
  }
}
