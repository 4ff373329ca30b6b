// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

func.func @no_mesh(%x: tensor<4xi64>) -> tensor<4xi64> {
  // expected-error@+1 {{'topt.collective_permute' op runs along no mesh, expected shard.grid @mesh, got: none}}
  %0 = "topt.collective_permute"(%x) {sources = array<i64: 1, 0>, grid_axes = array<i16: 0>} : (tensor<4xi64>) -> tensor<4xi64>
  return %0 : tensor<4xi64>
}

// -----

shard.grid @mesh(shape = 2x2)
func.func @kind(%x: tensor<4xi64>) -> tensor<4xi64> {
  // expected-error@+1 {{'topt.collective_permute' op has the wrong kind of 'grid_axes', expected array<i16>, got: [0]}}
  %0 = "topt.collective_permute"(%x) {sources = array<i64: 1, 0>, grid_axes = [0]} : (tensor<4xi64>) -> tensor<4xi64>
  return %0 : tensor<4xi64>
}

// -----

shard.grid @mesh(shape = 2x2)
func.func @range(%x: tensor<4xi64>) -> tensor<4xi64> {
  // expected-error@+1 {{'topt.collective_permute' op names no axis of mesh 2x2, expected below 2, got: [2]}}
  %0 = "topt.collective_permute"(%x) {sources = array<i64: 1, 0>, grid_axes = array<i16: 2>} : (tensor<4xi64>) -> tensor<4xi64>
  return %0 : tensor<4xi64>
}

// -----

shard.grid @mesh(shape = 2x2)
func.func @sources(%x: tensor<4xi64>) -> tensor<4xi64> {
  // expected-error@+1 {{'topt.collective_permute' op has wrong 'sources', expected each position below 2 once, got: array<i64: 1, 1>}}
  %0 = "topt.collective_permute"(%x) {sources = array<i64: 1, 1>, grid_axes = array<i16: 0>} : (tensor<4xi64>) -> tensor<4xi64>
  return %0 : tensor<4xi64>
}

// -----

shard.grid @mesh(shape = 2x2)
func.func @type(%x: tensor<4xi64>) -> tensor<2xi64> {
  // expected-error@+1 {{'topt.collective_permute' op changes the type, expected tensor<4xi64>, got: tensor<2xi64>}}
  %0 = "topt.collective_permute"(%x) {sources = array<i64: 1, 0>, grid_axes = array<i16: 0>} : (tensor<4xi64>) -> tensor<2xi64>
  return %0 : tensor<2xi64>
}
