// RUN: tensoropt-opt %s -p cse | filecheck %s

// CHECK: shard.grid @mesh(shape = 2x2)
shard.grid @mesh(shape = 2x2)

// CHECK-LABEL: func.func @main(%arg0: tensor<4x8xf32> {topt.layout = #topt.layout<@mesh, ["S(0)", "R"]>, topt.name = "x"})
func.func @main(%x: tensor<4x8xf32> {topt.name = "x", topt.layout = #topt.layout<@mesh, ["S(0)", "R"]>}) -> tensor<4x8xf32> {
  // CHECK-NEXT: %0 = "onnx.Relu"(%arg0) {topt.strategy = #topt.strategy<[#topt.layout<@mesh, ["S(0)", "R"]>], [#topt.layout<@mesh, ["S(0)", "R"]>]>}
  %0 = "onnx.Relu"(%x) {
    topt.strategy = #topt.strategy<[#topt.layout<@mesh, ["S(0)", "R"]>], [#topt.layout<@mesh, ["S(0)", "R"]>]>
  } : (tensor<4x8xf32>) -> tensor<4x8xf32>
  // CHECK-NEXT: %1 = "topt.reshard"(%0) {dst = #topt.layout<@mesh, ["R", "P(sum)"]>, src = #topt.layout<@mesh, ["S(0)", "R"]>}
  %1 = "topt.reshard"(%0) {src = #topt.layout<@mesh, ["S(0)", "R"]>, dst = #topt.layout<@mesh, ["R", "P(sum)"]>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  // CHECK-NEXT: %2 = "topt.axis_constant"() {axes = array<i64: 1>, values = dense<[0, 4]> : tensor<2xi64>}
  %2 = "topt.axis_constant"() {values = dense<[0, 4]> : tensor<2xi64>, axes = array<i64: 1>} : () -> tensor<i64>
  // CHECK-NEXT: "onnx.Add"(%1, %2)
  %3 = "onnx.Add"(%1, %2) : (tensor<4x8xf32>, tensor<i64>) -> tensor<4x8xf32>
  return %3 : tensor<4x8xf32>
}
