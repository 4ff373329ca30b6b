// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// What control flow holds is whole on every rank; a value from outside is read whole.

// CHECK: func.func @main
// CHECK-SAME: [[K:%\w+]]: tensor<i1>
// CHECK-SAME: [[X:%\w+]]: tensor<4xf32>
// CHECK-SAME: -> {{.*}}tensor<4xf32>
// CHECK-NEXT: [[IF:%\w+]] = "onnx.If"([[K]]) ({
// CHECK-NEXT: "onnx.Yield"([[X]]) : (tensor<4xf32>) -> ()
// CHECK-NEXT: }, {
// CHECK-NEXT: [[NEG:%\w+]] = "onnx.Neg"([[X]]) : (tensor<4xf32>) -> tensor<4xf32>
// CHECK-NEXT: "onnx.Yield"([[NEG]]) : (tensor<4xf32>) -> ()
// CHECK-NEXT: }) {{.*}} : (tensor<i1>) -> tensor<4xf32>
// CHECK-NEXT: return [[IF]] : tensor<4xf32>
#whole = #topt.layout<@mesh, ["R"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%k: tensor<i1> {topt.name = "k", topt.layout = #whole}, %x: tensor<4xf32> {topt.name = "x", topt.layout = #whole}) -> (tensor<4xf32> {topt.name = "y", topt.layout = #whole}) {
    %0 = "onnx.If"(%k) ({
      "onnx.Yield"(%x) : (tensor<4xf32>) -> ()
    }, {
      %1 = "onnx.Neg"(%x) : (tensor<4xf32>) -> tensor<4xf32>
      "onnx.Yield"(%1) : (tensor<4xf32>) -> ()
    }) {topt.strategy = #topt.strategy<[#whole, #whole], [#whole]>, topt.regions = ["else_branch", "then_branch"]} : (tensor<i1>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
