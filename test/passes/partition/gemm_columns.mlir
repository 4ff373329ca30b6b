// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// The bias is split as the columns of the product are.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<4x8xf32>
// CHECK-SAME: [[W:%\w+]]: tensor<8x3xf32>
// CHECK-SAME: [[B:%\w+]]: tensor<3xf32>
// CHECK-SAME: -> {{.*}}tensor<4x3xf32>
// CHECK-NEXT: [[GEMM:%\w+]] = "onnx.Gemm"([[X]], [[W]], [[B]]) : (tensor<4x8xf32>, tensor<8x3xf32>, tensor<3xf32>) -> tensor<4x3xf32>
// CHECK-NEXT: return [[GEMM]] : tensor<4x3xf32>
#whole = #topt.layout<@mesh, ["R"]>
#columns = #topt.layout<@mesh, ["S(1)"]>
#rows = #topt.layout<@mesh, ["S(0)"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x", topt.layout = #whole}, %w: tensor<8x6xf32> {topt.name = "w", topt.param, topt.layout = #columns}, %b: tensor<6xf32> {topt.name = "b", topt.param, topt.layout = #rows}) -> (tensor<4x6xf32> {topt.name = "y", topt.layout = #columns}) {
    %0 = "onnx.Gemm"(%x, %w, %b) {topt.strategy = #topt.strategy<[#whole, #columns, #rows], [#columns]>} : (tensor<4x8xf32>, tensor<8x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
    return %0 : tensor<4x6xf32>
  }
}
