// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

module {
  shard.grid @mesh(shape = 2)
  func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {
    // expected-error@+1 {{has a wrong topt.together, expected one of shard.all_reduce, shard.all_gather, shard.reduce_scatter, got: onnx.Relu}}
    %0 = "onnx.Relu"(%a) {topt.together = 2 : i64} : (tensor<8xf32>) -> tensor<8xf32>
    return %0 : tensor<8xf32>
  }
}

// -----

module {
  shard.grid @mesh(shape = 2)
  func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {
    // expected-error@+1 {{has a wrong topt.together, expected 2 or more, got: 1}}
    %0 = shard.all_reduce %a on @mesh grid_axes = [0] {topt.together = 1 : i64} : tensor<8xf32> -> tensor<8xf32>
    return %0 : tensor<8xf32>
  }
}

// -----

module {
  shard.grid @mesh(shape = 2)
  func.func @main(%a: tensor<8xf32>, %b: tensor<8xf64>) -> (tensor<8xf32>, tensor<8xf64>) {
    // expected-error@+1 {{has a wrong topt.together, expected 2 equal collectives in a row, got: 1}}
    %0 = shard.all_reduce %a on @mesh grid_axes = [0] {topt.together = 2 : i64} : tensor<8xf32> -> tensor<8xf32>
    %1 = shard.all_reduce %b on @mesh grid_axes = [0] : tensor<8xf64> -> tensor<8xf64>
    return %0, %1 : tensor<8xf32>, tensor<8xf64>
  }
}

// -----

module {
  shard.grid @mesh(shape = 2)
  func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {
    // expected-error@+1 {{has a wrong topt.together, expected independent collectives, got:}}
    %0 = shard.all_reduce %a on @mesh grid_axes = [0] {topt.together = 2 : i64} : tensor<8xf32> -> tensor<8xf32>
    %1 = shard.all_reduce %0 on @mesh grid_axes = [0] : tensor<8xf32> -> tensor<8xf32>
    return %1 : tensor<8xf32>
  }
}

// -----

module {
  shard.grid @mesh(shape = 2)
  func.func @main(%a: tensor<8xf32>, %b: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
    // expected-error@+1 {{has a wrong topt.together, expected it only on the first of them, got: another}}
    %0 = shard.all_reduce %a on @mesh grid_axes = [0] {topt.together = 2 : i64} : tensor<8xf32> -> tensor<8xf32>
    %1 = shard.all_reduce %b on @mesh grid_axes = [0] {topt.together = 2 : i64} : tensor<8xf32> -> tensor<8xf32>
    return %0, %1 : tensor<8xf32>, tensor<8xf32>
  }
}
