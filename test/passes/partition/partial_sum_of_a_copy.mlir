// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// A copy becomes partial sums: one rank keeps it, the others have zeros.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<8x16xf32>
// CHECK-SAME: -> {{.*}}tensor<8x16xf32>
// CHECK-NEXT: [[CONSTANT:%\w+]] = "onnx.Constant"() {value = dense<0.000000e+00> : tensor<f32>} : () -> tensor<f32>
// CHECK-NEXT: [[AXIS_CONSTANT:%\w+]] = "topt.axis_constant"() {axes = array<i64: 0>, values = dense<[true, false, false, false]> : tensor<4xi1>} : () -> tensor<i1>
// CHECK-NEXT: [[WHERE:%\w+]] = "onnx.Where"([[AXIS_CONSTANT]], [[X]], [[CONSTANT]]) : (tensor<i1>, tensor<8x16xf32>, tensor<f32>) -> tensor<8x16xf32>
// CHECK-NEXT: return [[WHERE]] : tensor<8x16xf32>
#from = #topt.layout<@mesh, ["R"]>
#to = #topt.layout<@mesh, ["P(sum)"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 4)
  func.func @main(%x: tensor<8x16xf32> {topt.name = "x", topt.layout = #from}) -> (tensor<8x16xf32> {topt.name = "y", topt.layout = #to}) {
    %0 = "topt.reshard"(%x) {src = #from, dst = #to} : (tensor<8x16xf32>) -> tensor<8x16xf32>
    return %0 : tensor<8x16xf32>
  }
}
