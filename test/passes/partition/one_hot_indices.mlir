// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// Split indices: each rank has its own rows.

// CHECK: func.func @main
// CHECK-SAME: [[I:%\w+]]: tensor<2xi64>
// CHECK-SAME: -> {{.*}}tensor<2x8xf32>
// CHECK-NEXT: [[CONSTANT:%\w+]] = "onnx.Constant"() {value = dense<8> : tensor<i64>} : () -> tensor<i64>
// CHECK-NEXT: [[CONSTANT_2:%\w+]] = "onnx.Constant"() {value = dense<[0.000000e+00, 1.000000e+00]> : tensor<2xf32>} : () -> tensor<2xf32>
// CHECK-NEXT: [[ONE_HOT:%\w+]] = "onnx.OneHot"([[I]], [[CONSTANT]], [[CONSTANT_2]]) {axis = -1 : i64} : (tensor<2xi64>, tensor<i64>, tensor<2xf32>) -> tensor<2x8xf32>
// CHECK-NEXT: return [[ONE_HOT]] : tensor<2x8xf32>
#rows = #topt.layout<@mesh, ["S(0)"]>
#whole = #topt.layout<@mesh, ["R"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%i: tensor<4xi64> {topt.name = "i", topt.layout = #rows}) -> (tensor<4x8xf32> {topt.name = "y", topt.layout = #rows}) {
    %d = "onnx.Constant"() {topt.strategy = #topt.strategy<[], [#whole]>, value = dense<8> : tensor<i64>} : () -> tensor<i64>
    %v = "onnx.Constant"() {topt.strategy = #topt.strategy<[], [#whole]>, value = dense<[0.0, 1.0]> : tensor<2xf32>} : () -> tensor<2xf32>
    %0 = "onnx.OneHot"(%i, %d, %v) {axis = -1 : i64, topt.strategy = #topt.strategy<[#rows, #whole, #whole], [#rows]>} : (tensor<4xi64>, tensor<i64>, tensor<2xf32>) -> tensor<4x8xf32>
    return %0 : tensor<4x8xf32>
  }
}
