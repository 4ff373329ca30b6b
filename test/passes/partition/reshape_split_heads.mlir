// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// Splitting a dimension leaves its first part split, and the shape is that of one rank.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<4x4xf32>
// CHECK-SAME: -> {{.*}}tensor<4x1x4xf32>
// CHECK-NEXT: {{%\w+}} = "onnx.Constant"() {value = dense<[4, 2, 4]> : tensor<3xi64>} : () -> tensor<3xi64>
// CHECK-NEXT: [[CONSTANT_2:%\w+]] = "onnx.Constant"() {value = dense<[4, 1, 4]> : tensor<3xi64>} : () -> tensor<3xi64>
// CHECK-NEXT: [[RESHAPE:%\w+]] = "onnx.Reshape"([[X]], [[CONSTANT_2]]) : (tensor<4x4xf32>, tensor<3xi64>) -> tensor<4x1x4xf32>
// CHECK-NEXT: return [[RESHAPE]] : tensor<4x1x4xf32>
#columns = #topt.layout<@mesh, ["S(1)"]>
#whole = #topt.layout<@mesh, ["R"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x", topt.layout = #columns}) -> (tensor<4x2x4xf32> {topt.name = "y", topt.layout = #columns}) {
    %s = "onnx.Constant"() {topt.strategy = #topt.strategy<[], [#whole]>, value = dense<[4, 2, 4]> : tensor<3xi64>} : () -> tensor<3xi64>
    %0 = "onnx.Reshape"(%x, %s) {topt.strategy = #topt.strategy<[#columns, #whole], [#columns]>} : (tensor<4x8xf32>, tensor<3xi64>) -> tensor<4x2x4xf32>
    return %0 : tensor<4x2x4xf32>
  }
}
