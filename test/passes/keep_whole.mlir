// RUN: tensoropt-opt %s -p add-rules,keep-whole,keep-whole,partition | filecheck %s

// What `partition` leaves of @main is the program of one rank; the whole one stays beside it, once.
// CHECK: module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}, topt.passed = "partition"}
// CHECK: func.func @main({{.*}}: tensor<2x6xf32>
// CHECK-NOT: topt.strategy
// CHECK: module @whole {
// CHECK-NEXT: func.func @main({{.*}}: tensor<4x6xf32>
// CHECK-NEXT: topt.strategy
// CHECK-NOT: module @whole
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<4x6xf32> {topt.layout = #topt.layout<@mesh, ["S(0)"]>, topt.name = "x"}) -> (tensor<4x6xf32> {topt.layout = #topt.layout<@mesh, ["S(0)"]>, topt.name = "y"}) {
    %0 = "onnx.Relu"(%x) {topt.strategy = #topt.strategy<[#topt.layout<@mesh, ["S(0)"]>], [#topt.layout<@mesh, ["S(0)"]>]>} : (tensor<4x6xf32>) -> tensor<4x6xf32>
    return %0 : tensor<4x6xf32>
  }
}
