// RUN: tensoropt-opt %s -p combine-collectives --split-input-file | filecheck %s

// Both are there before either result is read: one wait for the other ranks is enough.
// CHECK-LABEL: func.func @main({{.*}}"wide"
// CHECK: [[FIRST:%\w+]] = shard.all_reduce {{.*}} {topt.together = 2 : i64} : tensor<8xf32>
// CHECK-NEXT: [[SECOND:%\w+]] = shard.all_reduce {{.*}} : tensor<4xf32> -> tensor<4xf32>
// CHECK-NEXT: "onnx.Relu"([[FIRST]])
// CHECK-NEXT: "onnx.Relu"([[SECOND]])
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}, topt.passed = "partition"} {
  shard.grid @mesh(shape = 2)
  func.func @main(%a: tensor<8xf32> {topt.name = "a"}, %wide: tensor<800xf32> {topt.name = "wide"}, %b: tensor<4xf32> {topt.name = "b"})
      -> (tensor<8xf32> {topt.name = "x"}, tensor<4xf32> {topt.name = "y"}, tensor<800xf32> {topt.name = "z"}) {
    %0 = shard.all_reduce %a on @mesh grid_axes = [0] : tensor<8xf32> -> tensor<8xf32>
    %1 = "onnx.Relu"(%0) : (tensor<8xf32>) -> tensor<8xf32>
    %2 = shard.all_reduce %b on @mesh grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
    %3 = "onnx.Relu"(%2) : (tensor<4xf32>) -> tensor<4xf32>
    %4 = "onnx.Relu"(%wide) : (tensor<800xf32>) -> tensor<800xf32>
    return %1, %3, %4 : tensor<8xf32>, tensor<4xf32>, tensor<800xf32>
  }
}

// -----

// The gradient of a later layer waits for that of an earlier one, and what only leads to the update
// with it; what the backward pass goes on with does not.
// CHECK-LABEL: func.func @main({{.*}}"w2"
// CHECK: [[WIDE:%\w+]] = "onnx.Relu"
// CHECK-NEXT: [[G1:%\w+]] = "onnx.Neg"
// CHECK-NEXT: [[G2:%\w+]] = "onnx.Abs"
// CHECK-NEXT: [[R1:%\w+]] = shard.all_reduce [[G1]] on @mesh grid_axes = [0] {topt.together = 2 : i64}
// CHECK-NEXT: [[R2:%\w+]] = shard.all_reduce [[G2]]
// CHECK-NEXT: "onnx.Identity"([[R1]]) {topt.gradient_of = "w1"
// CHECK-NEXT: "onnx.Identity"([[R2]]) {topt.gradient_of = "w2"
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}, topt.passed = "partition"} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<8xf32> {topt.name = "x"}, %w1: tensor<8xf32> {topt.name = "w1", topt.state = "parameter"}, %w2: tensor<8xf32> {topt.name = "w2", topt.state = "parameter"}, %wide: tensor<800xf32> {topt.name = "wide"})
      -> (tensor<8xf32> {topt.name = "w1.new", topt.updates = "w1"}, tensor<8xf32> {topt.name = "w2.new", topt.updates = "w2"}) {
    %0 = "onnx.Relu"(%wide) : (tensor<800xf32>) -> tensor<800xf32>
    %1 = "onnx.Neg"(%x) {topt.phase = "backward"} : (tensor<8xf32>) -> tensor<8xf32>
    %2 = shard.all_reduce %1 on @mesh grid_axes = [0] : tensor<8xf32> -> tensor<8xf32>
    %3 = "onnx.Identity"(%2) {topt.gradient_of = "w1", topt.phase = "backward"} : (tensor<8xf32>) -> tensor<8xf32>
    %4 = "onnx.Abs"(%1) {topt.phase = "backward"} : (tensor<8xf32>) -> tensor<8xf32>
    %5 = shard.all_reduce %4 on @mesh grid_axes = [0] : tensor<8xf32> -> tensor<8xf32>
    %6 = "onnx.Identity"(%5) {topt.gradient_of = "w2", topt.phase = "backward"} : (tensor<8xf32>) -> tensor<8xf32>
    %7 = "onnx.Sub"(%w1, %3) {topt.phase = "update"} : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    %8 = "onnx.Sub"(%w2, %6) {topt.phase = "update"} : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    return %7, %8 : tensor<8xf32>, tensor<8xf32>
  }
}

// -----

// The second is made of the first.
// CHECK-LABEL: func.func @main({{.*}}"depends"
// CHECK-NOT: topt.together
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}, topt.passed = "partition"} {
  shard.grid @mesh(shape = 2)
  func.func @main(%a: tensor<8xf32> {topt.name = "depends"}, %wide: tensor<800xf32> {topt.name = "wide"})
      -> (tensor<8xf32> {topt.name = "x"}, tensor<800xf32> {topt.name = "z"}) {
    %0 = "onnx.Relu"(%wide) : (tensor<800xf32>) -> tensor<800xf32>
    %1 = shard.all_reduce %a on @mesh grid_axes = [0] : tensor<8xf32> -> tensor<8xf32>
    %2 = "onnx.Relu"(%1) : (tensor<8xf32>) -> tensor<8xf32>
    %3 = shard.all_reduce %2 on @mesh grid_axes = [0] : tensor<8xf32> -> tensor<8xf32>
    return %3, %0 : tensor<8xf32>, tensor<800xf32>
  }
}

// -----

// Groups, reductions and element types are of three kinds.
// CHECK-LABEL: func.func @main({{.*}}"differ"
// CHECK-NOT: topt.together
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}, topt.passed = "partition"} {
  shard.grid @mesh(shape = 2x2)
  func.func @main(%a: tensor<8xf32> {topt.name = "differ"}, %b: tensor<8xf64> {topt.name = "b"}, %wide: tensor<800xf32> {topt.name = "wide"})
      -> (tensor<8xf32> {topt.name = "x0"}, tensor<8xf32> {topt.name = "x1"}, tensor<8xf32> {topt.name = "x2"}, tensor<8xf64> {topt.name = "x3"}, tensor<800xf32> {topt.name = "z"}) {
    %0 = "onnx.Relu"(%wide) : (tensor<800xf32>) -> tensor<800xf32>
    %1 = shard.all_reduce %a on @mesh grid_axes = [0] : tensor<8xf32> -> tensor<8xf32>
    %2 = shard.all_reduce %a on @mesh grid_axes = [1] : tensor<8xf32> -> tensor<8xf32>
    %3 = shard.all_reduce %a on @mesh grid_axes = [0] reduction = max : tensor<8xf32> -> tensor<8xf32>
    %4 = shard.all_reduce %b on @mesh grid_axes = [0] : tensor<8xf64> -> tensor<8xf64>
    return %1, %2, %3, %4, %0 : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf64>, tensor<800xf32>
  }
}

// -----

// While the first waited for the second, more would be alive than the program takes.
// CHECK-LABEL: func.func @main({{.*}}"tight"
// CHECK-NOT: topt.together
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}, topt.passed = "partition"} {
  shard.grid @mesh(shape = 2)
  func.func @main(%a: tensor<8xf32> {topt.name = "tight"}, %b: tensor<8xf32> {topt.name = "b"})
      -> (tensor<8xf32> {topt.name = "y"}) {
    %0 = shard.reduce_scatter %a on @mesh grid_axes = [0] scatter_dim = 0 : tensor<8xf32> -> tensor<4xf32>
    %1 = "onnx.ReduceSum"(%0) {keepdims = 1 : i64} : (tensor<4xf32>) -> tensor<1xf32>
    %2 = "onnx.Add"(%b, %1) : (tensor<8xf32>, tensor<1xf32>) -> tensor<8xf32>
    %3 = "onnx.Mul"(%b, %2) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    %4 = shard.reduce_scatter %3 on @mesh grid_axes = [0] scatter_dim = 0 : tensor<8xf32> -> tensor<4xf32>
    %5 = shard.all_gather %4 on @mesh grid_axes = [0] gather_axis = 0 : tensor<4xf32> -> tensor<8xf32>
    return %5 : tensor<8xf32>
  }
}

// -----

// Packing these takes longer than a second wait.
// CHECK-LABEL: func.func @main({{.*}}"large"
// CHECK-NOT: topt.together
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}, topt.passed = "partition"} {
  shard.grid @mesh(shape = 2)
  func.func @main(%a: tensor<1000000xf32> {topt.name = "large"}, %b: tensor<1000000xf32> {topt.name = "b"})
      -> (tensor<1000000xf32> {topt.name = "x"}, tensor<1000000xf32> {topt.name = "y"}) {
    %0 = shard.all_reduce %a on @mesh grid_axes = [0] : tensor<1000000xf32> -> tensor<1000000xf32>
    %1 = shard.all_reduce %b on @mesh grid_axes = [0] : tensor<1000000xf32> -> tensor<1000000xf32>
    return %0, %1 : tensor<1000000xf32>, tensor<1000000xf32>
  }
}
