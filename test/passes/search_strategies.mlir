// RUN: tensoropt-opt %s -p search-strategies{mesh=2} | filecheck %s

// CHECK: module attributes {topt.device = "cpu"
// CHECK-NEXT: shard.grid @mesh(shape = 2)
module attributes {topt.model = "m.onnx", topt.opset = {ai.onnx = 20 : i64}, topt.ir_version = 10 : i64} {
  // The fastest plan splits a tensor this large, with no communication; half of it stays on a rank.
  // CHECK-NEXT: func.func @main(%arg0: tensor<1024x64xf32> {topt.layout = #topt.layout<@mesh, ["S([[DIM:[01]]])"]>, topt.name = "x"})
  func.func @main(%x: tensor<1024x64xf32> {topt.name = "x"}) -> (tensor<1024x64xf32> {topt.name = "y"}) {
    // CHECK-NEXT: "onnx.Relu"(%arg0) {topt.strategy = #topt.strategy<[#topt.layout<@mesh, ["S([[DIM]])"]>], [#topt.layout<@mesh, ["S([[DIM]])"]>]>}
    %0 = "onnx.Relu"(%x) : (tensor<1024x64xf32>) -> tensor<1024x64xf32>
    return %0 : tensor<1024x64xf32>
  }
}
