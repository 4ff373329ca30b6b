// RUN: tensoropt-opt %s -p add-rules | filecheck %s

// Five heads that a Reshape merges are the units of the columns that they come from, and of the rows
// that they go to.

module attributes {topt.model = "m.onnx", topt.opset = {ai.onnx = 20 : i64}, topt.ir_version = 10 : i64} {
  func.func @main(%x: tensor<2x20xf32> {topt.name = "x"}, %w: tensor<20x20xf32> {topt.name = "w", topt.param}, %v: tensor<20x20xf32> {topt.name = "v", topt.param}) -> (tensor<2x20xf32> {topt.name = "y"}) {
    %apart = "onnx.Constant"() {value = dense<[2, 5, 4]> : tensor<3xi64>} : () -> tensor<3xi64>
    %joined = "onnx.Constant"() {value = dense<[2, 20]> : tensor<2xi64>} : () -> tensor<2xi64>
    // CHECK: "onnx.MatMul"
    // CHECK-SAME: topt.rule = #topt.rule<"(j, i), (i, k) -> (j, k)", ["i=20 sum padded", "j=2", "k=20 in 5 padded"]
    %0 = "onnx.MatMul"(%x, %w) : (tensor<2x20xf32>, tensor<20x20xf32>) -> tensor<2x20xf32>
    // CHECK: "onnx.Reshape"
    // CHECK-SAME: topt.rule = #topt.rule<"(i, j in 5), (_) -> (i, j, _)", ["i=2", "j=5 in 5"]
    %1 = "onnx.Reshape"(%0, %apart) : (tensor<2x20xf32>, tensor<3xi64>) -> tensor<2x5x4xf32>
    // CHECK: "onnx.Relu"
    // CHECK-SAME: topt.rule = #topt.rule<"(i, j, k) -> (i, j, k)", ["i=2", "j=5 in 5 padded", "k=4 padded"]
    %2 = "onnx.Relu"(%1) : (tensor<2x5x4xf32>) -> tensor<2x5x4xf32>
    // CHECK: "onnx.Reshape"
    // CHECK-SAME: topt.rule = #topt.rule<"(i, j, _), (_) -> (i, j in 5)", ["i=2", "j=5 in 5"]
    %3 = "onnx.Reshape"(%2, %joined) : (tensor<2x5x4xf32>, tensor<2xi64>) -> tensor<2x20xf32>
    // CHECK: "onnx.MatMul"
    // CHECK-SAME: topt.rule = #topt.rule<"(j, i), (i, k) -> (j, k)", ["i=20 in 5 sum padded", "j=2", "k=20 padded"]
    %4 = "onnx.MatMul"(%3, %v) : (tensor<2x20xf32>, tensor<20x20xf32>) -> tensor<2x20xf32>
    return %4 : tensor<2x20xf32>
  }
}
