// RUN: tensoropt-opt %s -p fuse-experts,dce --split-input-file | filecheck %s

// As PyTorch exports Mixtral: two of four experts per token, with weights that add up to 1.

// CHECK-LABEL: func.func @main
// CHECK-SAME: [[X:%\w+]]: tensor<8x16xf32> {topt.name = "x"}, [[SCORES:%\w+]]: tensor<8x4xf32> {topt.name = "scores"}, [[UP:%\w+]]: tensor<4x12x16xf32> {topt.name = "up", topt.param}, [[DOWN:%\w+]]: tensor<4x16x6xf32>
// CHECK: [[HALVES:%\w+]] = "onnx.Reshape"([[UP]], {{.*}}) : (tensor<4x12x16xf32>, tensor<4xi64>) -> tensor<4x2x6x16xf32>
// CHECK-NEXT: [[PAIRS:%\w+]] = "onnx.Transpose"([[HALVES]]) {perm = array<i64: 0, 2, 1, 3>} : (tensor<4x2x6x16xf32>) -> tensor<4x6x2x16xf32>
// CHECK: [[TURNS:%\w+]] = "onnx.Reshape"([[PAIRS]], {{.*}}) : (tensor<4x6x2x16xf32>, tensor<3xi64>) -> tensor<4x12x16xf32>
// CHECK: [[NO:%\w+]] = "onnx.NoValue"
// CHECK: [[Y:%\w+]] = "onnx.com.microsoft.MoE"([[X]], [[SCORES]], [[TURNS]], [[NO]], [[DOWN]], [[NO]]) {activation_alpha = 1.000000e+00 : f32, activation_beta = 0.000000e+00 : f32, activation_type = "swiglu", k = 2 : i64, normalize_routing_weights = 1 : i64, swiglu_fusion = 1 : i64}
// CHECK-NEXT: return [[Y]]
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<8x16xf32> {topt.name = "x"}, %scores: tensor<8x4xf32> {topt.name = "scores"}, %up: tensor<4x12x16xf32> {topt.name = "up", topt.param}, %down: tensor<4x16x6xf32> {topt.name = "down", topt.param}) -> (tensor<8x16xf32> {topt.name = "y"}) {
    %one = "onnx.Constant"() {value = dense<1> : tensor<1xi64>} : () -> tensor<1xi64>
    %two = "onnx.Constant"() {value = dense<2> : tensor<1xi64>} : () -> tensor<1xi64>
    %last = "onnx.Constant"() {value = dense<-1> : tensor<1xi64>} : () -> tensor<1xi64>
    %every = "onnx.Constant"() {value = dense<[8, 2, 16]> : tensor<3xi64>} : () -> tensor<3xi64>
    %rows = "onnx.Constant"() {value = dense<[16, 16]> : tensor<2xi64>} : () -> tensor<2xi64>
    %odds = "onnx.Softmax"(%scores) {axis = -1 : i64} : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %best:2 = "onnx.TopK"(%odds, %two) {axis = -1 : i64} : (tensor<8x4xf32>, tensor<1xi64>) -> (tensor<8x2xf32>, tensor<8x2xi64>)
    %total = "onnx.ReduceSum"(%best#0, %last) {keepdims = 1 : i64} : (tensor<8x2xf32>, tensor<1xi64>) -> tensor<8x1xf32>
    %weights = "onnx.Div"(%best#0, %total) : (tensor<8x2xf32>, tensor<8x1xf32>) -> tensor<8x2xf32>
    %single = "onnx.Unsqueeze"(%x, %one) : (tensor<8x16xf32>, tensor<1xi64>) -> tensor<8x1x16xf32>
    %repeated = "onnx.Expand"(%single, %every) : (tensor<8x1x16xf32>, tensor<3xi64>) -> tensor<8x2x16xf32>
    %tokens = "onnx.Reshape"(%repeated, %rows) : (tensor<8x2x16xf32>, tensor<2xi64>) -> tensor<16x16xf32>
    %flat = "onnx.Reshape"(%best#1, %last) : (tensor<8x2xi64>, tensor<1xi64>) -> tensor<16xi64>
    %indices = "onnx.Unsqueeze"(%flat, %last) : (tensor<16xi64>, tensor<1xi64>) -> tensor<16x1xi64>
    %ups = "onnx.GatherND"(%up, %indices) : (tensor<4x12x16xf32>, tensor<16x1xi64>) -> tensor<16x12x16xf32>
    %column = "onnx.Unsqueeze"(%tokens, %last) : (tensor<16x16xf32>, tensor<1xi64>) -> tensor<16x16x1xf32>
    %wide = "onnx.MatMul"(%ups, %column) : (tensor<16x12x16xf32>, tensor<16x16x1xf32>) -> tensor<16x12x1xf32>
    %both = "onnx.Squeeze"(%wide, %last) : (tensor<16x12x1xf32>, tensor<1xi64>) -> tensor<16x12xf32>
    %gate:2 = "onnx.Split"(%both) {axis = 1 : i64, num_outputs = 2 : i64} : (tensor<16x12xf32>) -> (tensor<16x6xf32>, tensor<16x6xf32>)
    %sigmoid = "onnx.Sigmoid"(%gate#0) : (tensor<16x6xf32>) -> tensor<16x6xf32>
    %silu = "onnx.Mul"(%sigmoid, %gate#0) : (tensor<16x6xf32>, tensor<16x6xf32>) -> tensor<16x6xf32>
    %hidden = "onnx.Mul"(%gate#1, %silu) : (tensor<16x6xf32>, tensor<16x6xf32>) -> tensor<16x6xf32>
    %downs = "onnx.GatherND"(%down, %indices) : (tensor<4x16x6xf32>, tensor<16x1xi64>) -> tensor<16x16x6xf32>
    %inner = "onnx.Unsqueeze"(%hidden, %last) : (tensor<16x6xf32>, tensor<1xi64>) -> tensor<16x6x1xf32>
    %narrow = "onnx.MatMul"(%downs, %inner) : (tensor<16x16x6xf32>, tensor<16x6x1xf32>) -> tensor<16x16x1xf32>
    %results = "onnx.Squeeze"(%narrow, %last) : (tensor<16x16x1xf32>, tensor<1xi64>) -> tensor<16x16xf32>
    %each = "onnx.Reshape"(%weights, %last) : (tensor<8x2xf32>, tensor<1xi64>) -> tensor<16xf32>
    %share = "onnx.Unsqueeze"(%each, %last) : (tensor<16xf32>, tensor<1xi64>) -> tensor<16x1xf32>
    %weighted = "onnx.Mul"(%results, %share) : (tensor<16x16xf32>, tensor<16x1xf32>) -> tensor<16x16xf32>
    %parts = "onnx.Reshape"(%weighted, %every) : (tensor<16x16xf32>, tensor<3xi64>) -> tensor<8x2x16xf32>
    %y = "onnx.ReduceSum"(%parts, %one) {keepdims = 0 : i64} : (tensor<8x2x16xf32>, tensor<1xi64>) -> tensor<8x16xf32>
    return %y : tensor<8x16xf32>
  }
}

// -----

// Another sum of three dimensions.

// CHECK-LABEL: func.func @main
// CHECK-NOT: MoE
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<8x2x16xf32> {topt.name = "x"}, %w: tensor<8x2x1xf32> {topt.name = "w"}) -> (tensor<8x16xf32> {topt.name = "y"}) {
    %one = "onnx.Constant"() {value = dense<1> : tensor<1xi64>} : () -> tensor<1xi64>
    %weighted = "onnx.Mul"(%x, %w) : (tensor<8x2x16xf32>, tensor<8x2x1xf32>) -> tensor<8x2x16xf32>
    %y = "onnx.ReduceSum"(%weighted, %one) {keepdims = 0 : i64} : (tensor<8x2x16xf32>, tensor<1xi64>) -> tensor<8x16xf32>
    return %y : tensor<8x16xf32>
  }
}
