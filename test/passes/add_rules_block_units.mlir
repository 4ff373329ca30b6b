// RUN: tensoropt-opt %s -p add-rules | filecheck %s

// Three heads of queries, and one of keys, whose number follows from the size of the others.

module attributes {topt.model = "m.onnx", topt.opset = {ai.onnx = 20 : i64}, topt.ir_version = 10 : i64} {
  func.func @main(%x: tensor<2x8xf32> {topt.name = "x"}, %w: tensor<8x16xf32> {topt.name = "w", topt.param}) -> (tensor<2x3x4xf32> {topt.name = "q"}, tensor<2x4xf32> {topt.name = "k"}) {
    %sizes = "onnx.Constant"() {value = dense<[12, 4]> : tensor<2xi64>} : () -> tensor<2xi64>
    %apart = "onnx.Constant"() {value = dense<[2, 3, 4]> : tensor<3xi64>} : () -> tensor<3xi64>
    // CHECK: "onnx.MatMul"
    // CHECK-SAME: topt.rule = #topt.rule<"(j, i), (i, k) -> (j, k)", ["i=8 sum padded", "j=2", "k=16 of 3+1 in 3+1 padded"]
    %0 = "onnx.MatMul"(%x, %w) : (tensor<2x8xf32>, tensor<8x16xf32>) -> tensor<2x16xf32>
    // CHECK: "onnx.Split"
    // CHECK-SAME: topt.rule = #topt.rule<"(i, j of 3+1 in 3+1), (_) -> (i, j in 3), (i, j in 1)", ["i=2", "j=4"]
    %1:2 = "onnx.Split"(%0, %sizes) {axis = 1 : si64} : (tensor<2x16xf32>, tensor<2xi64>) -> (tensor<2x12xf32>, tensor<2x4xf32>)
    // CHECK: "onnx.Reshape"
    // CHECK-SAME: topt.rule = #topt.rule<"(i, j in 3), (_) -> (i, j, _)", ["i=2", "j=3 in 3"]
    %2 = "onnx.Reshape"(%1#0, %apart) : (tensor<2x12xf32>, tensor<3xi64>) -> tensor<2x3x4xf32>
    return %2, %1#1 : tensor<2x3x4xf32>, tensor<2x4xf32>
  }
}
