// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// A table split by rows, as of an embedding: each rank looks up what it has, the rest is zero.

// CHECK: func.func @main
// CHECK-SAME: [[W:%\w+]]: tensor<4x6xf32>
// CHECK-SAME: [[I:%\w+]]: tensor<4xi64>
// CHECK-SAME: -> {{.*}}tensor<4x6xf32>
// CHECK-NEXT: [[CONSTANT:%\w+]] = "onnx.Constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
// CHECK-NEXT: [[LESS:%\w+]] = "onnx.Less"([[I]], [[CONSTANT]]) : (tensor<4xi64>, tensor<i64>) -> tensor<4xi1>
// CHECK-NEXT: [[CONSTANT_2:%\w+]] = "onnx.Constant"() {value = dense<8> : tensor<i64>} : () -> tensor<i64>
// CHECK-NEXT: [[ADD:%\w+]] = "onnx.Add"([[I]], [[CONSTANT_2]]) : (tensor<4xi64>, tensor<i64>) -> tensor<4xi64>
// CHECK-NEXT: [[WHERE:%\w+]] = "onnx.Where"([[LESS]], [[ADD]], [[I]]) : (tensor<4xi1>, tensor<4xi64>, tensor<4xi64>) -> tensor<4xi64>
// CHECK-NEXT: [[AXIS_CONSTANT:%\w+]] = "topt.axis_constant"() {axes = array<i64: 0>, values = dense<[0, 4]> : tensor<2xi64>} : () -> tensor<i64>
// CHECK-NEXT: [[SUB:%\w+]] = "onnx.Sub"([[WHERE]], [[AXIS_CONSTANT]]) : (tensor<4xi64>, tensor<i64>) -> tensor<4xi64>
// CHECK-NEXT: [[CONSTANT_3:%\w+]] = "onnx.Constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
// CHECK-NEXT: [[LESS_2:%\w+]] = "onnx.Less"([[SUB]], [[CONSTANT_3]]) : (tensor<4xi64>, tensor<i64>) -> tensor<4xi1>
// CHECK-NEXT: [[NOT:%\w+]] = "onnx.Not"([[LESS_2]]) : (tensor<4xi1>) -> tensor<4xi1>
// CHECK-NEXT: [[CONSTANT_4:%\w+]] = "onnx.Constant"() {value = dense<4> : tensor<i64>} : () -> tensor<i64>
// CHECK-NEXT: [[LESS_3:%\w+]] = "onnx.Less"([[SUB]], [[CONSTANT_4]]) : (tensor<4xi64>, tensor<i64>) -> tensor<4xi1>
// CHECK-NEXT: [[AND:%\w+]] = "onnx.And"([[NOT]], [[LESS_3]]) : (tensor<4xi1>, tensor<4xi1>) -> tensor<4xi1>
// CHECK-NEXT: [[CONSTANT_5:%\w+]] = "onnx.Constant"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
// CHECK-NEXT: [[WHERE_2:%\w+]] = "onnx.Where"([[AND]], [[SUB]], [[CONSTANT_5]]) : (tensor<4xi1>, tensor<4xi64>, tensor<i64>) -> tensor<4xi64>
// CHECK-NEXT: [[GATHER:%\w+]] = "onnx.Gather"([[W]], [[WHERE_2]]) {axis = 0 : i64} : (tensor<4x6xf32>, tensor<4xi64>) -> tensor<4x6xf32>
// CHECK-NEXT: [[CONSTANT_6:%\w+]] = "onnx.Constant"() {value = dense<1> : tensor<1xi64>} : () -> tensor<1xi64>
// CHECK-NEXT: [[UNSQUEEZE:%\w+]] = "onnx.Unsqueeze"([[AND]], [[CONSTANT_6]]) : (tensor<4xi1>, tensor<1xi64>) -> tensor<4x1xi1>
// CHECK-NEXT: [[CONSTANT_7:%\w+]] = "onnx.Constant"() {value = dense<0.000000e+00> : tensor<f32>} : () -> tensor<f32>
// CHECK-NEXT: [[WHERE_3:%\w+]] = "onnx.Where"([[UNSQUEEZE]], [[GATHER]], [[CONSTANT_7]]) : (tensor<4x1xi1>, tensor<4x6xf32>, tensor<f32>) -> tensor<4x6xf32>
// CHECK-NEXT: return [[WHERE_3]] : tensor<4x6xf32>
#rows = #topt.layout<@mesh, ["S(0)"]>
#whole = #topt.layout<@mesh, ["R"]>
#sums = #topt.layout<@mesh, ["P(sum)"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%w: tensor<8x6xf32> {topt.name = "w", topt.param, topt.layout = #rows}, %i: tensor<4xi64> {topt.name = "i", topt.layout = #whole}) -> (tensor<4x6xf32> {topt.name = "y", topt.layout = #sums}) {
    %0 = "onnx.Gather"(%w, %i) {axis = 0 : i64, topt.strategy = #topt.strategy<[#rows, #whole], [#sums]>} : (tensor<8x6xf32>, tensor<4xi64>) -> tensor<4x6xf32>
    return %0 : tensor<4x6xf32>
  }
}
