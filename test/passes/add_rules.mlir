// RUN: tensoropt-opt %s -p add-rules | filecheck %s

module attributes {topt.model = "m.onnx", topt.opset = {ai.onnx = 20 : i64, my.ops = 1 : i64}, topt.ir_version = 10 : i64} {
  func.func @main(%a: tensor<4x6xf32> {topt.name = "a"}, %b: tensor<6x8xf32> {topt.name = "b"}, %c: tensor<8xf32> {topt.name = "c"}, %x: tensor<1x12x5xf32> {topt.name = "x"}, %w: tensor<24x4x3xf32> {topt.name = "w"}) -> (tensor<4x8xf32> {topt.name = "y"}, tensor<1x24x3xf32> {topt.name = "z"}) {
    // A product, whose bias is partial wherever the product is.
    // CHECK: "onnx.Gemm"
    // CHECK-SAME: topt.rule = #topt.rule<"(i, k), (k, j), (j) -> (i, j)", ["i=4 padded", "j=8 padded", "k=6 sum padded"], {additive = array<i64: 2>, flops = 2.000000e+00 : f64, linear = [array<i64: 0, 2>, array<i64: 1, 2>]}>
    %0 = "onnx.Gemm"(%a, %b, %c) : (tensor<4x6xf32>, tensor<6x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
    // Collectives inside the operation of a rank.
    // CHECK: "onnx.Softmax"
    // CHECK-SAME: topt.rule = #topt.rule<"(i, j) -> (i, j)", ["i=4 padded", "j=8 padded"], {flops = 1.500000e+01 : f64, inner = ["all_reduce over j of (i), 4 bytes", "all_reduce over j of (i), 4 bytes"]}>
    %1 = "onnx.Softmax"(%0) {axis = 1 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    // A rule that is there stays.
    // CHECK: "onnx.Relu"
    // CHECK-SAME: topt.rule = #topt.rule<"(rows, _) -> (rows, _)", ["rows=4"], {}>
    %2 = "onnx.Relu"(%1) {topt.rule = #topt.rule<"(rows, _) -> (rows, _)", ["rows=4"], {}>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    // What is not known runs whole.
    // CHECK: "onnx.my.ops.Own"
    // CHECK-SAME: topt.rule = #topt.rule<"(_, _) -> (_, _)", ["i=32 whole"], {}>
    %3 = "onnx.my.ops.Own"(%2) : (tensor<4x8xf32>) -> tensor<4x8xf32>
    // Each of three groups of a convolution is a block.
    // CHECK: "onnx.Conv"
    // CHECK-SAME: topt.rule = #topt.rule<"(i, j, _), (j l of 3, k, _) -> (i, j l of 3, m)", ["i=1 whole", "j=3", "k=4 sum padded", "l=8",
    %4 = "onnx.Conv"(%x, %w) {group = 3 : i64} : (tensor<1x12x5xf32>, tensor<24x4x3xf32>) -> tensor<1x24x3xf32>
    return %3, %4 : tensor<4x8xf32>, tensor<1x24x3xf32>
  }
}
