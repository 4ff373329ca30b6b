// RUN: tensoropt-opt %s -p dce | filecheck %s

// CHECK-LABEL: func.func @main
// The parameter that only dead code used goes, the unused input stays.
// CHECK-SAME: ([[ARG0:%\w+]]: tensor<4xf32> {topt.name = "x"}, [[ARG1:%\w+]]: tensor<4xf32> {topt.name = "unused"}, [[ARG2:%\w+]]: tensor<4xf32> {topt.name = "v", topt.param})
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<4xf32> {topt.name = "x"}, %u: tensor<4xf32> {topt.name = "unused"}, %w: tensor<4xf32> {topt.name = "w", topt.param}, %v: tensor<4xf32> {topt.name = "v", topt.param}) -> (tensor<4xf32> {topt.name = "y"}) {
    %k = "onnx.Constant"() {value = dense<true> : tensor<i1>} : () -> tensor<i1>
    %0 = "onnx.Add"(%x, %w) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %1 = "onnx.Relu"(%0) : (tensor<4xf32>) -> tensor<4xf32>
    // CHECK-NEXT: %[[C:.*]] = "onnx.Constant"
    %c = "onnx.Constant"() {value = dense<false> : tensor<i1>} : () -> tensor<i1>
    // CHECK-NEXT: "onnx.If"(%[[C]]) ({
    %2 = "onnx.If"(%c) ({
      %3 = "onnx.Neg"(%x) : (tensor<4xf32>) -> tensor<4xf32>
      // CHECK-NEXT: "onnx.Yield"([[ARG0]])
      "onnx.Yield"(%x) : (tensor<4xf32>) -> ()
    }, {
      // CHECK: "onnx.Abs"([[ARG2]])
      %3 = "onnx.Abs"(%v) : (tensor<4xf32>) -> tensor<4xf32>
      "onnx.Yield"(%3) : (tensor<4xf32>) -> ()
    }) {topt.regions = ["else_branch", "then_branch"]} : (tensor<i1>) -> tensor<4xf32>
    // CHECK: return
    return %2 : tensor<4xf32>
  }
}
