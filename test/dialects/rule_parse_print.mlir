// RUN: tensoropt-opt %s -p cse | filecheck %s

// CHECK-LABEL: func.func @main
func.func @main(%x: tensor<4x?xf32>, %w: tensor<f32>) -> (tensor<4xf32>, none) {
  // CHECK: topt.rule = #topt.rule<"(i, long_name), () -> (i), ()", ["i=4 least=2", "long_name=? max", "k=7 whole"], {additive = array<i64: 1>, flops = 5.000000e-01 : f64, inner = ["copy over i, k of (i, k), 4 bytes"], linear = [array<i64: 0, 1>]}>
  %0:2 = "onnx.my.ops.Own"(%x, %w) {
    topt.rule = #topt.rule<"(i, long_name), () -> (i), ()", ["i=4 least=2", "long_name=? max", "k=7 whole"], {linear = [array<i64: 0, 1>], additive = array<i64: 1>, inner = ["copy over i, k of (i, k), 4 bytes"], flops = 0.5 : f64}>
  } : (tensor<4x?xf32>, tensor<f32>) -> (tensor<4xf32>, none)
  return %0#0, %0#1 : tensor<4xf32>, none
}

// CHECK-LABEL: func.func private @minor
func.func private @minor(%x: tensor<4x24xf32>) -> tensor<4x24xf32> {
  // CHECK: topt.rule = #topt.rule<"(i, j k) -> (i, j k)", ["i=4", "j=3", "k=8"], {}>
  %0 = "onnx.Relu"(%x) {
    topt.rule = #topt.rule<"(i, j k) -> (i, j k)", ["i=4", "j=3", "k=8"], {}>
  } : (tensor<4x24xf32>) -> tensor<4x24xf32>
  return %0 : tensor<4x24xf32>
}

// CHECK-LABEL: func.func private @joint
func.func private @joint(%x: tensor<4x8xf32>, %w: tensor<6x8xf32>) -> tensor<4x8xf32> {
  // CHECK: topt.rule = #topt.rule<"(i, k), (j, k) -> (i, k)", ["i=4", "j=6 sum", "k=8"], {inner = ["all_to_all_rows over joint i, j of (i, k), 4 bytes per 2 choices", "copy over i, j of (i), 4 bytes per 2 choices 3 times if padded"], joint = [array<i64: 0, 1>]}>
  %0 = "onnx.my.ops.Own"(%x, %w) {
    topt.rule = #topt.rule<"(i, k), (j, k) -> (i, k)", ["i=4", "j=6 sum", "k=8"], {joint = [array<i64: 0, 1>], inner = ["all_to_all_rows over joint i, j of (i, k), 4 bytes per 2 choices", "copy over i, j of (i), 4 bytes per 2 choices 3 times if padded"]}>
  } : (tensor<4x8xf32>, tensor<6x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// CHECK-LABEL: func.func private @blocks
func.func private @blocks(%x: tensor<4x24xf32>, %w: tensor<24xf32>) -> (tensor<4x16xf32>, tensor<4x8xf32>) {
  // CHECK: topt.rule = #topt.rule<"(j), (i, j) -> (i, j)", ["i=4", "j=24 of 2+1 padded"], {}>
  %0 = "onnx.Add"(%w, %x) {
    topt.rule = #topt.rule<"(j), (i, j) -> (i, j)", ["i=4", "j=24 of 2+1 padded"], {}>
  } : (tensor<24xf32>, tensor<4x24xf32>) -> tensor<4x24xf32>
  // CHECK: topt.rule = #topt.rule<"(i, j of 2+1) -> (i, j), (i, j)", ["i=4", "j=8"], {}>
  %1:2 = "onnx.my.ops.Cut"(%0) {
    topt.rule = #topt.rule<"(i, j of 2+1) -> (i, j), (i, j)", ["i=4", "j=8"], {}>
  } : (tensor<4x24xf32>) -> (tensor<4x16xf32>, tensor<4x8xf32>)
  return %1#0, %1#1 : tensor<4x16xf32>, tensor<4x8xf32>
}

// CHECK-LABEL: func.func private @blocks_of_merged_factors
func.func private @blocks_of_merged_factors(%x: tensor<4x24xf32>) -> tensor<4x24xf32> {
  // CHECK: topt.rule = #topt.rule<"(i, j k of 3) -> (i, j k of 3)", ["i=4", "j=3", "k=8"], {}>
  %0 = "onnx.Relu"(%x) {
    topt.rule = #topt.rule<"(i, j k of 3) -> (i, j k of 3)", ["i=4", "j=3", "k=8"], {}>
  } : (tensor<4x24xf32>) -> tensor<4x24xf32>
  return %0 : tensor<4x24xf32>
}

// CHECK-LABEL: func.func private @units_of_blocks
func.func private @units_of_blocks(%x: tensor<4x24xf32>) -> (tensor<4x16xf32>, tensor<4x4xf32>) {
  // CHECK: topt.rule = #topt.rule<"(i, j) -> (i, j)", ["i=4", "j=24 of 4+1+1 in 4+1+1 padded"], {}>
  %0 = "onnx.Relu"(%x) {
    topt.rule = #topt.rule<"(i, j) -> (i, j)", ["i=4", "j=24 of 4+1+1 in 4+1+1 padded"], {}>
  } : (tensor<4x24xf32>) -> tensor<4x24xf32>
  // CHECK: topt.rule = #topt.rule<"(i, j) -> (i, j)", ["i=4", "j=24 of 3 in 8 padded"], {}>
  %1 = "onnx.Relu"(%0) {
    topt.rule = #topt.rule<"(i, j) -> (i, j)", ["i=4", "j=24 of 3 in 8 padded"], {}>
  } : (tensor<4x24xf32>) -> tensor<4x24xf32>
  // CHECK: topt.rule = #topt.rule<"(i, j of 4+1+1 in 4+1+1) -> (i, j in 4), (i, j in 1)", ["i=4", "j=4"], {}>
  %2:2 = "onnx.my.ops.Cut"(%1) {
    topt.rule = #topt.rule<"(i, j of 4+1+1 in 4+1+1) -> (i, j in 4), (i, j in 1)", ["i=4", "j=4"], {}>
  } : (tensor<4x24xf32>) -> (tensor<4x16xf32>, tensor<4x4xf32>)
  return %2#0, %2#1 : tensor<4x16xf32>, tensor<4x4xf32>
}

// CHECK-LABEL: func.func private @units
func.func private @units(%x: tensor<4x24xf32>) -> tensor<4x6x4xf32> {
  // CHECK: topt.rule = #topt.rule<"(i, j) -> (i, j)", ["i=4", "j=24 in 6 padded"], {}>
  %0 = "onnx.Relu"(%x) {
    topt.rule = #topt.rule<"(i, j) -> (i, j)", ["i=4", "j=24 in 6 padded"], {}>
  } : (tensor<4x24xf32>) -> tensor<4x24xf32>
  // CHECK: topt.rule = #topt.rule<"(i, j in 6) -> (i, j, _)", ["i=4", "j=6 in 6"], {}>
  %1 = "onnx.my.ops.Cut"(%0) {
    topt.rule = #topt.rule<"(i, j in 6) -> (i, j, _)", ["i=4", "j=6 in 6"], {}>
  } : (tensor<4x24xf32>) -> tensor<4x6x4xf32>
  return %1 : tensor<4x6x4xf32>
}
