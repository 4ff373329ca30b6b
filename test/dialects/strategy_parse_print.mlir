// RUN: tensoropt-opt %s | filecheck %s

// No operand, several, and an alias, which is written out.
#whole = #topt.layout<@mesh, ["R"]>
shard.grid @mesh(shape = 2)
func.func @main(%x: tensor<4xf32>) {
  // CHECK: "onnx.Constant"() {topt.strategy = #topt.strategy<[], [#topt.layout<@mesh, ["R"]>]>, value = dense<1.000000e+00> : tensor<f32>}
  %0 = "onnx.Constant"() {value = dense<1.0> : tensor<f32>, topt.strategy = #topt.strategy<[], [#whole]>} : () -> tensor<f32>
  // CHECK-NEXT: "onnx.Add"({{.*}}) {topt.strategy = #topt.strategy<[#topt.layout<@mesh, ["S(0)"]>, #topt.layout<@mesh, ["R"]>], [#topt.layout<@mesh, ["S(0)"]>]>}
  %1 = "onnx.Add"(%x, %0) {topt.strategy = #topt.strategy<[#topt.layout<@mesh, ["S(0)"]>, #whole], [#topt.layout<@mesh, ["S(0)"]>]>} : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  return
}
