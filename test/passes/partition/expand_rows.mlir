// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// The shape that is expanded to is that of one rank.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<1x8xf32>
// CHECK-SAME: -> {{.*}}tensor<2x8xf32>
// CHECK-NEXT: {{%\w+}} = "onnx.Constant"() {value = dense<[4, 8]> : tensor<2xi64>} : () -> tensor<2xi64>
// CHECK-NEXT: [[CONSTANT_2:%\w+]] = "onnx.Constant"() {value = dense<[2, 8]> : tensor<2xi64>} : () -> tensor<2xi64>
// CHECK-NEXT: [[EXPAND:%\w+]] = "onnx.Expand"([[X]], [[CONSTANT_2]]) : (tensor<1x8xf32>, tensor<2xi64>) -> tensor<2x8xf32>
// CHECK-NEXT: return [[EXPAND]] : tensor<2x8xf32>
#whole = #topt.layout<@mesh, ["R"]>
#rows = #topt.layout<@mesh, ["S(0)"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<1x8xf32> {topt.name = "x", topt.layout = #whole}) -> (tensor<4x8xf32> {topt.name = "y", topt.layout = #rows}) {
    %s = "onnx.Constant"() {topt.strategy = #topt.strategy<[], [#whole]>, value = dense<[4, 8]> : tensor<2xi64>} : () -> tensor<2xi64>
    %0 = "onnx.Expand"(%x, %s) {topt.strategy = #topt.strategy<[#whole, #whole], [#rows]>} : (tensor<1x8xf32>, tensor<2xi64>) -> tensor<4x8xf32>
    return %0 : tensor<4x8xf32>
  }
}
