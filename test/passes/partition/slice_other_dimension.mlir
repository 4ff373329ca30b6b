// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// A slice along a whole dimension is local.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<2x8xf32>
// CHECK-SAME: -> {{.*}}tensor<2x4xf32>
// CHECK-NEXT: [[CONSTANT:%\w+]] = "onnx.Constant"() {value = dense<2> : tensor<1xi64>} : () -> tensor<1xi64>
// CHECK-NEXT: [[CONSTANT_2:%\w+]] = "onnx.Constant"() {value = dense<6> : tensor<1xi64>} : () -> tensor<1xi64>
// CHECK-NEXT: [[CONSTANT_3:%\w+]] = "onnx.Constant"() {value = dense<1> : tensor<1xi64>} : () -> tensor<1xi64>
// CHECK-NEXT: [[SLICE:%\w+]] = "onnx.Slice"([[X]], [[CONSTANT]], [[CONSTANT_2]], [[CONSTANT_3]]) : (tensor<2x8xf32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<2x4xf32>
// CHECK-NEXT: return [[SLICE]] : tensor<2x4xf32>
#rows = #topt.layout<@mesh, ["S(0)"]>
#whole = #topt.layout<@mesh, ["R"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x", topt.layout = #rows}) -> (tensor<4x4xf32> {topt.name = "y", topt.layout = #rows}) {
    %s = "onnx.Constant"() {topt.strategy = #topt.strategy<[], [#whole]>, value = dense<2> : tensor<1xi64>} : () -> tensor<1xi64>
    %e = "onnx.Constant"() {topt.strategy = #topt.strategy<[], [#whole]>, value = dense<6> : tensor<1xi64>} : () -> tensor<1xi64>
    %a = "onnx.Constant"() {topt.strategy = #topt.strategy<[], [#whole]>, value = dense<1> : tensor<1xi64>} : () -> tensor<1xi64>
    %0 = "onnx.Slice"(%x, %s, %e, %a) {topt.strategy = #topt.strategy<[#rows, #whole, #whole, #whole], [#rows]>} : (tensor<4x8xf32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<4x4xf32>
    return %0 : tensor<4x4xf32>
  }
}
