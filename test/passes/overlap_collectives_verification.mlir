// RUN: tensoropt-opt %s --verify-diagnostics --split-input-file

module {
  shard.grid @mesh(shape = 2)
  func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {
    // expected-error@+1 {{'onnx.Relu' op has a wrong topt.start, expected one of shard.all_reduce, shard.all_gather, shard.reduce_scatter, shard.all_to_all, topt.collective_permute, got: onnx.Relu}}
    %0 = "onnx.Relu"(%a) {topt.start} : (tensor<8xf32>) -> tensor<8xf32>
    return %0 : tensor<8xf32>
  }
}

// -----

module {
  shard.grid @mesh(shape = 2)
  func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {
    // expected-error@+1 {{'shard.all_reduce' op has a wrong topt.start, expected one topt.wait to read its result, got: func.return}}
    %0 = shard.all_reduce %a on @mesh grid_axes = [0] {topt.start} : tensor<8xf32> -> tensor<8xf32>
    return %0 : tensor<8xf32>
  }
}

// -----

module {
  shard.grid @mesh(shape = 2)
  func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {
    %0 = "onnx.Relu"(%a) : (tensor<8xf32>) -> tensor<8xf32>
    // expected-error@+1 {{'topt.wait' op expected the result of one of shard.all_reduce, shard.all_gather, shard.reduce_scatter, shard.all_to_all, topt.collective_permute, got: onnx.Relu}}
    %1 = "topt.wait"(%0) {operandSegmentSizes = array<i32: 1, 0>} : (tensor<8xf32>) -> tensor<8xf32>
    return %1 : tensor<8xf32>
  }
}

// -----

module {
  shard.grid @mesh(shape = 2)
  func.func @main(%a: tensor<8xf32>) -> tensor<16xf32> {
    %0 = shard.all_gather %a on @mesh grid_axes = [0] gather_axis = 0 {topt.start} : tensor<8xf32> -> tensor<16xf32>
    // expected-error@+1 {{'topt.wait' op has a wrong 'held', expected the operand of the collective, got: 0 operands}}
    %1 = "topt.wait"(%0) {operandSegmentSizes = array<i32: 1, 0>} : (tensor<16xf32>) -> tensor<16xf32>
    return %1 : tensor<16xf32>
  }
}

// -----

module {
  shard.grid @mesh(shape = 2)
  func.func @main(%a: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
    // expected-error@+1 {{'shard.all_reduce' op has a wrong topt.start, expected its waits in a row, got: others between them}}
    %0 = shard.all_reduce %a on @mesh grid_axes = [0] {topt.start, topt.together = 2 : i64} : tensor<8xf32> -> tensor<8xf32>
    %1 = shard.all_reduce %a on @mesh grid_axes = [0] : tensor<8xf32> -> tensor<8xf32>
    %2 = "topt.wait"(%0) {operandSegmentSizes = array<i32: 1, 0>} : (tensor<8xf32>) -> tensor<8xf32>
    %3 = "onnx.Relu"(%2) : (tensor<8xf32>) -> tensor<8xf32>
    %4 = "topt.wait"(%1) {operandSegmentSizes = array<i32: 1, 0>} : (tensor<8xf32>) -> tensor<8xf32>
    return %2, %3, %4 : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
  }
}
