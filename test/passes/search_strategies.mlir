// RUN: tensoropt-opt %s -p add-rules,search-strategies{mesh=2} | filecheck %s

// CHECK: module attributes {topt.device = "cpu"
// CHECK-SAME: topt.passed = "search", topt.search = {epsilon = 0.000000e+00 : f64, name = "ft", strategies = "{{[0-9a-f]+}}"}}
// CHECK-NEXT: shard.grid @mesh(shape = 2)
module attributes {topt.model = "m.onnx", topt.opset = {ai.onnx = 20 : i64}, topt.ir_version = 10 : i64} {
  // The fastest plan splits a tensor this large, with no communication; half of it stays on a rank.
  // CHECK-NEXT: func.func @main([[ARG0:%\w+]]: tensor<1024x64xf32> {topt.layout = #topt.layout<@mesh, ["S([[DIM:[01]]])"]>, topt.name = "x"})
  func.func @main(%x: tensor<1024x64xf32> {topt.name = "x"}) -> (tensor<1024x64xf32> {topt.name = "y"}) {
    // CHECK-NEXT: "onnx.Relu"([[ARG0]]) {topt.rule = {{.*}}, topt.strategy = #topt.strategy<[#topt.layout<@mesh, ["S([[DIM]])"]>], [#topt.layout<@mesh, ["S([[DIM]])"]>]>}
    %0 = "onnx.Relu"(%x) : (tensor<1024x64xf32>) -> tensor<1024x64xf32>
    return %0 : tensor<1024x64xf32>
  }
  // CHECK: "topt.point"() {chosen, communication_s = 0.000000e+00 : f64, compute_s = {{.*}} : f64, mesh = array<i64: 2>, process_bytes = {{[0-9]+}} : i64, static_bytes = 0 : i64, transient_bytes = 262144 : i64} : () -> ()
  // CHECK-NOT: topt.point
}
