// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// Five rows on two ranks: a copy of the last row pads them, since no Pad takes bfloat16.

// CHECK: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<5x8xbf16>
// CHECK-SAME: -> {{.*}}tensor<3x8xbf16>
// CHECK-NEXT: [[ROWS:%\w+]] = "onnx.Constant"() {value = dense<[0, 1, 2, 3, 4, 4]> : tensor<6xi64>} : () -> tensor<6xi64>
// CHECK-NEXT: [[SIX:%\w+]] = "onnx.Gather"([[X]], [[ROWS]]) {axis = 0 : i64} : (tensor<5x8xbf16>, tensor<6xi64>) -> tensor<6x8xbf16>
// CHECK-NEXT: shard.all_slice [[SIX]] on @mesh grid_axes = [0] slice_axis = 0 : tensor<6x8xbf16> -> tensor<3x8xbf16>
#whole = #topt.layout<@mesh, ["R"]>
#rows = #topt.layout<@mesh, ["S(0)"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<5x8xbf16> {topt.name = "x", topt.layout = #whole}) -> (tensor<5x8xbf16> {topt.name = "y", topt.layout = #rows}) {
    %0 = "topt.reshard"(%x) {src = #whole, dst = #rows} : (tensor<5x8xbf16>) -> tensor<5x8xbf16>
    %1 = "onnx.Relu"(%0) {topt.strategy = #topt.strategy<[#rows], [#rows]>} : (tensor<5x8xbf16>) -> tensor<5x8xbf16>
    return %1 : tensor<5x8xbf16>
  }
}
