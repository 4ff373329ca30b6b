// RUN: tensoropt-opt %s -p add-rules,check-strategies | filecheck %s

// Nobody searched these strategies: they are costed, and the weight lies as its one use wants it.
// CHECK: module attributes {{{.*}}topt.search = {name = "pinned", strategies = "[[PRINT:[0-9a-f]+]]"}}
// CHECK: %arg1: tensor<6x8xf32> {topt.layout = #topt.layout<@mesh, ["S(1)"]>, topt.name = "w", topt.param}
// CHECK: "topt.point"() {chosen, communication_s = {{.*}} : f64, compute_s = {{.*}} : f64, mesh = array<i64: 2>, process_bytes = {{[0-9]+}} : i64, static_bytes = 96 : i64
// CHECK-NOT: topt.point
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}, topt.search = {name = "ft", strategies = "of-another"}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<4x6xf32> {topt.layout = #topt.layout<@mesh, ["R"]>, topt.name = "x"}, %w: tensor<6x8xf32> {topt.layout = #topt.layout<@mesh, ["R"]>, topt.name = "w", topt.param}) -> (tensor<4x8xf32> {topt.layout = #topt.layout<@mesh, ["S(1)"]>, topt.name = "y"}) {
    %0 = "onnx.MatMul"(%x, %w) {topt.strategy = #topt.strategy<[#topt.layout<@mesh, ["R"]>, #topt.layout<@mesh, ["S(1)"]>], [#topt.layout<@mesh, ["S(1)"]>]>} : (tensor<4x6xf32>, tensor<6x8xf32>) -> tensor<4x8xf32>
    return %0 : tensor<4x8xf32>
  }
  "topt.point"() {chosen, communication_s = 1.0 : f64, compute_s = 1.0 : f64, mesh = array<i64: 4>, static_bytes = 1 : i64, transient_bytes = 1 : i64} : () -> ()
}
