// RUN: tensoropt-opt %s -p optimize-reshards --split-input-file | filecheck %s

module attributes {topt.device = "h200"} {
  shard.grid @mesh(shape = 2)

  // CHECK-LABEL: func.func @main
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x"}, %w: tensor<4x8xf32> {topt.name = "w", topt.param}) -> (tensor<4x8xf32> {topt.name = "y"}) {
    // Two equal reshards become one.
    // CHECK-NEXT: [[RESHARD:%\w+]] = "topt.reshard"([[ARG0:%\w+]]) {dst = #topt.layout<@mesh, ["R"]>, src = #topt.layout<@mesh, ["P(sum)"]>}
    // A third starts from the nearest layout: the sum is there already, and is cut.
    // CHECK-NEXT: [[RESHARD_2:%\w+]] = "topt.reshard"([[RESHARD]]) {dst = #topt.layout<@mesh, ["S(1)"]>, src = #topt.layout<@mesh, ["R"]>}
    // A constant is always cut from the layout it is stored in.
    // CHECK-NEXT: [[RESHARD_3:%\w+]] = "topt.reshard"([[ARG1:%\w+]]) {dst = #topt.layout<@mesh, ["S(0)"]>, src = #topt.layout<@mesh, ["R"]>}
    // CHECK-NEXT: [[RESHARD_4:%\w+]] = "topt.reshard"([[ARG1]]) {dst = #topt.layout<@mesh, ["P(sum)"]>, src = #topt.layout<@mesh, ["R"]>}
    %0 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["P(sum)"]>, dst = #topt.layout<@mesh, ["R"]>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %1 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["P(sum)"]>, dst = #topt.layout<@mesh, ["R"]>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %2 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["P(sum)"]>, dst = #topt.layout<@mesh, ["S(1)"]>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %3 = "topt.reshard"(%w) {src = #topt.layout<@mesh, ["R"]>, dst = #topt.layout<@mesh, ["S(0)"]>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %4 = "topt.reshard"(%w) {src = #topt.layout<@mesh, ["R"]>, dst = #topt.layout<@mesh, ["P(sum)"]>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    // A reshard to the same layout does nothing.
    // CHECK-NEXT: "onnx.Sum"([[RESHARD]], [[RESHARD]], [[RESHARD_2]], [[RESHARD_3]], [[RESHARD_4]], [[RESHARD]])
    %5 = "topt.reshard"(%0) {src = #topt.layout<@mesh, ["R"]>, dst = #topt.layout<@mesh, ["R"]>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %6 = "onnx.Sum"(%0, %1, %2, %3, %4, %5) : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
    return %6 : tensor<4x8xf32>
  }
}

// -----

module attributes {topt.device = "h200"} {
  shard.grid @mesh(shape = 2)

  // The layout that another starts from is made first, though it is wanted later: to sum and cut is
  // cheaper than to sum into parts and gather.
  // CHECK-LABEL: func.func @main
  func.func @main(%x: tensor<64x64xf32> {topt.name = "x"}) -> (tensor<64x64xf32> {topt.name = "y"}) {
    // CHECK-NEXT: [[RESHARD:%\w+]] = "topt.reshard"([[ARG0:%\w+]]) {dst = #topt.layout<@mesh, ["R"]>, src = #topt.layout<@mesh, ["P(sum)"]>}
    // CHECK-NEXT: [[RESHARD_2:%\w+]] = "topt.reshard"([[RESHARD]]) {dst = #topt.layout<@mesh, ["S(1)"]>, src = #topt.layout<@mesh, ["R"]>}
    // CHECK-NEXT: [[RELU:%\w+]] = "onnx.Relu"([[RESHARD_2]])
    // CHECK-NEXT: "onnx.Add"([[RELU]], [[RESHARD]])
    %0 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["P(sum)"]>, dst = #topt.layout<@mesh, ["S(1)"]>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
    %1 = "onnx.Relu"(%0) : (tensor<64x64xf32>) -> tensor<64x64xf32>
    %2 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["P(sum)"]>, dst = #topt.layout<@mesh, ["R"]>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
    %3 = "onnx.Add"(%1, %2) : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
    return %3 : tensor<64x64xf32>
  }
}

// -----

module attributes {topt.device = "h200"} {
  shard.grid @mesh(shape = 2)

  // State of a training step is gathered once for the forward pass and once for the backward pass,
  // with what is recomputed there, so that it need not be kept whole in between.
  // CHECK-LABEL: func.func @main
  func.func @main(%w: tensor<4x8xf32> {topt.name = "w", topt.state = "parameter"}) -> (tensor<4x8xf32> {topt.name = "y"}) {
    // CHECK-NEXT: [[RESHARD:%\w+]] = "topt.reshard"([[ARG0:%\w+]]) {{.*}}topt.phase = "forward"
    // CHECK-NEXT: [[RESHARD_2:%\w+]] = "topt.reshard"([[ARG0]]) {{.*}}topt.phase = "recompute"
    // CHECK-NEXT: "onnx.Sum"([[RESHARD]], [[RESHARD]], [[RESHARD_2]], [[RESHARD_2]])
    %0 = "topt.reshard"(%w) {src = #topt.layout<@mesh, ["S(0)"]>, dst = #topt.layout<@mesh, ["R"]>, topt.phase = "forward"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %1 = "topt.reshard"(%w) {src = #topt.layout<@mesh, ["S(0)"]>, dst = #topt.layout<@mesh, ["R"]>, topt.phase = "forward"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %2 = "topt.reshard"(%w) {src = #topt.layout<@mesh, ["S(0)"]>, dst = #topt.layout<@mesh, ["R"]>, topt.phase = "recompute"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %3 = "topt.reshard"(%w) {src = #topt.layout<@mesh, ["S(0)"]>, dst = #topt.layout<@mesh, ["R"]>, topt.phase = "backward"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %4 = "onnx.Sum"(%0, %1, %2, %3) : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
    return %4 : tensor<4x8xf32>
  }
}

// -----

module attributes {topt.device = "h200"} {
  shard.grid @mesh(shape = 2)

  // What is smaller than its source is made as soon as nothing else reads that: of what is read
  // whole before, behind the last such reader; else behind what makes the source.
  // CHECK-LABEL: func.func @main
  func.func @main(%x: tensor<64x64xf32> {topt.name = "x"}) -> (tensor<64x64xf32> {topt.name = "y"}) {
    // CHECK-NEXT: [[RELU:%\w+]] = "onnx.Relu"([[ARG0:%\w+]])
    // CHECK-NEXT: [[CUT:%\w+]] = "topt.reshard"([[ARG0]])
    // CHECK-NEXT: [[SUMMED:%\w+]] = "topt.reshard"([[RELU]]) {{.*}}src = #topt.layout<@mesh, ["P(sum)"]>
    // CHECK-NEXT: [[ABS:%\w+]] = "onnx.Abs"([[SUMMED]])
    // CHECK-NEXT: [[NEG:%\w+]] = "onnx.Neg"([[ABS]])
    // What gets larger waits for its reader.
    // CHECK-NEXT: [[WHOLE:%\w+]] = "topt.reshard"([[ABS]]) {{.*}}dst = #topt.layout<@mesh, ["R"]>
    // CHECK-NEXT: "onnx.Sum"([[CUT]], [[NEG]], [[WHOLE]])
    %0 = "onnx.Relu"(%x) : (tensor<64x64xf32>) -> tensor<64x64xf32>
    %1 = "topt.reshard"(%0) {src = #topt.layout<@mesh, ["P(sum)"]>, dst = #topt.layout<@mesh, ["S(0)"]>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
    %2 = "onnx.Abs"(%1) : (tensor<64x64xf32>) -> tensor<64x64xf32>
    %3 = "onnx.Neg"(%2) : (tensor<64x64xf32>) -> tensor<64x64xf32>
    %4 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["R"]>, dst = #topt.layout<@mesh, ["S(0)"]>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
    %5 = "topt.reshard"(%2) {src = #topt.layout<@mesh, ["S(0)"]>, dst = #topt.layout<@mesh, ["R"]>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
    %6 = "onnx.Sum"(%4, %3, %5) : (tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
    return %6 : tensor<64x64xf32>
  }
}

// -----

module attributes {topt.device = "h200"} {
  shard.grid @mesh(shape = 2)

  // Of two parts the second is cut behind the first, and belongs to the part of the step that it is
  // in then. State stays in memory: there is nothing to free.
  // CHECK-LABEL: func.func @main
  func.func @main(%x: tensor<64x64xf32> {topt.name = "x"}, %w: tensor<64x64xf32> {topt.name = "w", topt.state = "parameter"}) -> (tensor<64x64xf32> {topt.name = "y"}) {
    // CHECK-NEXT: [[RELU:%\w+]] = "onnx.Relu"([[ARG0:%\w+]])
    // CHECK-NEXT: [[FIRST:%\w+]] = "topt.reshard"([[RELU]]) {dst = #topt.layout<@mesh, ["S(0)"]>, {{.*}}topt.phase = "forward"
    // CHECK-NEXT: [[SECOND:%\w+]] = "topt.reshard"([[RELU]]) {dst = #topt.layout<@mesh, ["S(1)"]>, {{.*}}topt.phase = "forward"
    // CHECK-NEXT: [[ABS:%\w+]] = "onnx.Abs"([[FIRST]])
    // CHECK-NEXT: [[STATE:%\w+]] = "topt.reshard"([[ARG1:%\w+]]) {{.*}}topt.phase = "backward"
    // CHECK-NEXT: "onnx.Sum"([[ABS]], [[SECOND]], [[STATE]])
    %0 = "onnx.Relu"(%x) {topt.phase = "forward"} : (tensor<64x64xf32>) -> tensor<64x64xf32>
    %1 = "topt.reshard"(%0) {src = #topt.layout<@mesh, ["R"]>, dst = #topt.layout<@mesh, ["S(0)"]>, topt.phase = "forward"} : (tensor<64x64xf32>) -> tensor<64x64xf32>
    %2 = "onnx.Abs"(%1) {topt.phase = "forward"} : (tensor<64x64xf32>) -> tensor<64x64xf32>
    %3 = "topt.reshard"(%0) {src = #topt.layout<@mesh, ["R"]>, dst = #topt.layout<@mesh, ["S(1)"]>, topt.phase = "backward"} : (tensor<64x64xf32>) -> tensor<64x64xf32>
    %4 = "topt.reshard"(%w) {src = #topt.layout<@mesh, ["R"]>, dst = #topt.layout<@mesh, ["S(1)"]>, topt.phase = "backward"} : (tensor<64x64xf32>) -> tensor<64x64xf32>
    %5 = "onnx.Sum"(%2, %3, %4) {topt.phase = "backward"} : (tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
    return %5 : tensor<64x64xf32>
  }
}
