// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

shard.grid @mesh(shape = 2x2)
func.func @range(%x: tensor<4x3xf32>, %rows: tensor<4x2xi64>) -> tensor<?x3xf32> {
  // expected-error@+1 {{'topt.all_to_all_rows' op names no axis of mesh 2x2, expected below 2, got: [2]}}
  %0 = "topt.all_to_all_rows"(%x, %rows) {grid_axes = array<i16: 2>} : (tensor<4x3xf32>, tensor<4x2xi64>) -> tensor<?x3xf32>
  return %0 : tensor<?x3xf32>
}

// -----

shard.grid @mesh(shape = 2x2)
func.func @rows(%x: tensor<4x3xf32>, %rows: tensor<4x2xi64>) -> tensor<?x3xf32> {
  // expected-error@+1 {{'topt.all_to_all_rows' op has wrong 'rows', expected tensor<2x2xi64>, got: tensor<4x2xi64>}}
  %0 = "topt.all_to_all_rows"(%x, %rows) {grid_axes = array<i16: 1>} : (tensor<4x3xf32>, tensor<4x2xi64>) -> tensor<?x3xf32>
  return %0 : tensor<?x3xf32>
}

// -----

shard.grid @mesh(shape = 2x2)
func.func @scalar(%x: tensor<f32>, %rows: tensor<4x2xi64>) -> tensor<?xf32> {
  // expected-error@+1 {{'topt.all_to_all_rows' op has no rows, expected at least one dimension, got: tensor<f32>}}
  %0 = "topt.all_to_all_rows"(%x, %rows) {grid_axes = array<i16: 0, 1>} : (tensor<f32>, tensor<4x2xi64>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// -----

shard.grid @mesh(shape = 2x2)
func.func @result(%x: tensor<4x3xf32>, %rows: tensor<4x2xi64>) -> tensor<4x3xf32> {
  // expected-error@+1 {{'topt.all_to_all_rows' op has a wrong result, expected tensor<?x3xf32>, got: tensor<4x3xf32>}}
  %0 = "topt.all_to_all_rows"(%x, %rows) {grid_axes = array<i16: 0, 1>} : (tensor<4x3xf32>, tensor<4x2xi64>) -> tensor<4x3xf32>
  return %0 : tensor<4x3xf32>
}
