// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// A constant fill has the shape of one rank.

// CHECK: func.func @main
// CHECK-SAME: -> {{.*}}tensor<2x8xf32>
// CHECK-NEXT: {{%\w+}} = "onnx.Constant"() {value = dense<[4, 8]> : tensor<2xi64>} : () -> tensor<2xi64>
// CHECK-NEXT: [[CONSTANT_2:%\w+]] = "onnx.Constant"() {value = dense<[2, 8]> : tensor<2xi64>} : () -> tensor<2xi64>
// CHECK-NEXT: [[CONSTANT_OF_SHAPE:%\w+]] = "onnx.ConstantOfShape"([[CONSTANT_2]]) {value = dense<2.000000e+00> : tensor<1xf32>} : (tensor<2xi64>) -> tensor<2x8xf32>
// CHECK-NEXT: return [[CONSTANT_OF_SHAPE]] : tensor<2x8xf32>
#whole = #topt.layout<@mesh, ["R"]>
#rows = #topt.layout<@mesh, ["S(0)"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main() -> (tensor<4x8xf32> {topt.name = "y", topt.layout = #rows}) {
    %s = "onnx.Constant"() {topt.strategy = #topt.strategy<[], [#whole]>, value = dense<[4, 8]> : tensor<2xi64>} : () -> tensor<2xi64>
    %0 = "onnx.ConstantOfShape"(%s) {value = dense<2.0> : tensor<1xf32>, topt.strategy = #topt.strategy<[#whole], [#rows]>} : (tensor<2xi64>) -> tensor<4x8xf32>
    return %0 : tensor<4x8xf32>
  }
}
