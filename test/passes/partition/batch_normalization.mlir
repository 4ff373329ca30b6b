// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// Channels are normalised each by its own.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<2x2x8xf32>
// CHECK-SAME: [[S:%\w+]]: tensor<2xf32>
// CHECK-SAME: [[B:%\w+]]: tensor<2xf32>
// CHECK-SAME: [[M:%\w+]]: tensor<2xf32>
// CHECK-SAME: [[V:%\w+]]: tensor<2xf32>
// CHECK-SAME: -> {{.*}}tensor<2x2x8xf32>
// CHECK-NEXT: [[BATCH_NORMALIZATION:%\w+]] = "onnx.BatchNormalization"([[X]], [[S]], [[B]], [[M]], [[V]]) : (tensor<2x2x8xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<2x2x8xf32>
// CHECK-NEXT: return [[BATCH_NORMALIZATION]] : tensor<2x2x8xf32>
#columns = #topt.layout<@mesh, ["S(1)"]>
#rows = #topt.layout<@mesh, ["S(0)"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<2x4x8xf32> {topt.name = "x", topt.layout = #columns}, %s: tensor<4xf32> {topt.name = "s", topt.param, topt.layout = #rows}, %b: tensor<4xf32> {topt.name = "b", topt.param, topt.layout = #rows}, %m: tensor<4xf32> {topt.name = "m", topt.param, topt.layout = #rows}, %v: tensor<4xf32> {topt.name = "v", topt.param, topt.layout = #rows}) -> (tensor<2x4x8xf32> {topt.name = "y", topt.layout = #columns}) {
    %0 = "onnx.BatchNormalization"(%x, %s, %b, %m, %v) {topt.strategy = #topt.strategy<[#columns, #rows, #rows, #rows, #rows], [#columns]>} : (tensor<2x4x8xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<2x4x8xf32>
    return %0 : tensor<2x4x8xf32>
  }
}
