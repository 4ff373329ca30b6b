// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// Heights: the ranks share the rows at their edges, which windows reach over.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<2x4x4x8xf32>
// CHECK-SAME: [[W:%\w+]]: tensor<6x4x3x3xf32>
// CHECK-SAME: -> {{.*}}tensor<2x6x4x8xf32>
// CHECK-NEXT: [[AXIS_CONSTANT:%\w+]] = "topt.axis_constant"() {axes = array<i64: 0>, values = dense<{{\[\[}}3], [0{{\]\]}}> : tensor<2x1xi64>} : () -> tensor<1xi64>
// CHECK-NEXT: [[GATHER:%\w+]] = "onnx.Gather"([[X]], [[AXIS_CONSTANT]]) {axis = 2 : i64} : (tensor<2x4x4x8xf32>, tensor<1xi64>) -> tensor<2x4x1x8xf32>
// CHECK-NEXT: [[COLLECTIVE_PERMUTE:%\w+]] = "topt.collective_permute"([[GATHER]]) {grid_axes = array<i16: 0>, sources = array<i64: 1, 0>} : (tensor<2x4x1x8xf32>) -> tensor<2x4x1x8xf32>
// CHECK-NEXT: [[CONSTANT:%\w+]] = "onnx.Constant"() {value = dense<[0, 0, 0, 0, 0, 0, 1, 0]> : tensor<8xi64>} : () -> tensor<8xi64>
// CHECK-NEXT: [[CONSTANT_2:%\w+]] = "onnx.Constant"() {value = dense<0.000000e+00> : tensor<f32>} : () -> tensor<f32>
// CHECK-NEXT: [[PAD:%\w+]] = "onnx.Pad"([[COLLECTIVE_PERMUTE]], [[CONSTANT]], [[CONSTANT_2]]) {mode = "constant"} : (tensor<2x4x1x8xf32>, tensor<8xi64>, tensor<f32>) -> tensor<2x4x2x8xf32>
// CHECK-NEXT: [[AXIS_CONSTANT_2:%\w+]] = "topt.axis_constant"() {axes = array<i64: 0>, values = dense<{{\[\[}}1], [0{{\]\]}}> : tensor<2x1xi64>} : () -> tensor<1xi64>
// CHECK-NEXT: [[GATHER_2:%\w+]] = "onnx.Gather"([[PAD]], [[AXIS_CONSTANT_2]]) {axis = 2 : i64} : (tensor<2x4x2x8xf32>, tensor<1xi64>) -> tensor<2x4x1x8xf32>
// CHECK-NEXT: [[AXIS_CONSTANT_3:%\w+]] = "topt.axis_constant"() {axes = array<i64: 0>, values = dense<{{\[\[}}0], [1{{\]\]}}> : tensor<2x1xi64>} : () -> tensor<1xi64>
// CHECK-NEXT: [[GATHER_3:%\w+]] = "onnx.Gather"([[PAD]], [[AXIS_CONSTANT_3]]) {axis = 2 : i64} : (tensor<2x4x2x8xf32>, tensor<1xi64>) -> tensor<2x4x1x8xf32>
// CHECK-NEXT: [[CONCAT:%\w+]] = "onnx.Concat"([[GATHER_2]], [[X]], [[GATHER_3]]) {axis = 2 : i64} : (tensor<2x4x1x8xf32>, tensor<2x4x4x8xf32>, tensor<2x4x1x8xf32>) -> tensor<2x4x6x8xf32>
// CHECK-NEXT: [[CONV:%\w+]] = "onnx.Conv"([[CONCAT]], [[W]]) {auto_pad = "NOTSET", kernel_shape = array<i64: 3, 3>, pads = array<i64: 0, 1, 0, 1>} : (tensor<2x4x6x8xf32>, tensor<6x4x3x3xf32>) -> tensor<2x6x4x8xf32>
// CHECK-NEXT: return [[CONV]] : tensor<2x6x4x8xf32>
#split2 = #topt.layout<@mesh, ["S(2)"]>
#whole = #topt.layout<@mesh, ["R"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<2x4x8x8xf32> {topt.name = "x", topt.layout = #split2}, %w: tensor<6x4x3x3xf32> {topt.name = "w", topt.param, topt.layout = #whole}) -> (tensor<2x6x8x8xf32> {topt.name = "y", topt.layout = #split2}) {
    %0 = "onnx.Conv"(%x, %w) {kernel_shape = array<i64: 3, 3>, pads = array<i64: 1, 1, 1, 1>, topt.strategy = #topt.strategy<[#split2, #whole], [#split2]>} : (tensor<2x4x8x8xf32>, tensor<6x4x3x3xf32>) -> tensor<2x6x8x8xf32>
    return %0 : tensor<2x6x8x8xf32>
  }
}
