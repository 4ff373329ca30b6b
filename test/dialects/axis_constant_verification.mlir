// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

func.func @no_mesh() -> tensor<i64> {
  // expected-error@+1 {{'topt.axis_constant' op runs along no mesh, expected shard.grid @mesh, got: none}}
  %0 = "topt.axis_constant"() {values = dense<[0, 4]> : tensor<2xi64>, axes = array<i64: 0>} : () -> tensor<i64>
  return %0 : tensor<i64>
}

// -----

shard.grid @mesh(shape = 2x2)
func.func @kind() -> tensor<i64> {
  // expected-error@+1 {{'topt.axis_constant' op has the wrong kind of 'axes', expected array<i64>, got: [0]}}
  %0 = "topt.axis_constant"() {values = dense<[0, 4]> : tensor<2xi64>, axes = [0]} : () -> tensor<i64>
  return %0 : tensor<i64>
}

// -----

shard.grid @mesh(shape = 2x2)
func.func @twice() -> tensor<i64> {
  // expected-error@+1 {{'topt.axis_constant' op uses an axis twice, expected each once, got: [0, 0]}}
  %0 = "topt.axis_constant"() {values = dense<[0, 4]> : tensor<2xi64>, axes = array<i64: 0, 0>} : () -> tensor<i64>
  return %0 : tensor<i64>
}

// -----

shard.grid @mesh(shape = 2x2)
func.func @range() -> tensor<i64> {
  // expected-error@+1 {{'topt.axis_constant' op names no axis of mesh 2x2, expected below 2, got: [2]}}
  %0 = "topt.axis_constant"() {values = dense<[0, 4]> : tensor<2xi64>, axes = array<i64: 2>} : () -> tensor<i64>
  return %0 : tensor<i64>
}

// -----

shard.grid @mesh(shape = 2x2)
func.func @count() -> tensor<i64> {
  // expected-error@+1 {{'topt.axis_constant' op has wrong 'values', expected tensor<4xi64>, got: tensor<2xi64>}}
  %0 = "topt.axis_constant"() {values = dense<[0, 4]> : tensor<2xi64>, axes = array<i64: 0, 1>} : () -> tensor<i64>
  return %0 : tensor<i64>
}

// -----

shard.grid @mesh(shape = 2x2)
func.func @shape() -> tensor<3xi64> {
  // expected-error@+1 {{'topt.axis_constant' op has wrong 'values', expected tensor<2x3xi64>, got: tensor<2xi64>}}
  %0 = "topt.axis_constant"() {values = dense<[0, 4]> : tensor<2xi64>, axes = array<i64: 0>} : () -> tensor<3xi64>
  return %0 : tensor<3xi64>
}

// -----

shard.grid @mesh(shape = 2x2)
func.func @element() -> tensor<f32> {
  // expected-error@+1 {{'topt.axis_constant' op has wrong 'values', expected tensor<2xf32>, got: tensor<2xi64>}}
  %0 = "topt.axis_constant"() {values = dense<[0, 4]> : tensor<2xi64>, axes = array<i64: 0>} : () -> tensor<f32>
  return %0 : tensor<f32>
}

// -----

shard.grid @mesh(shape = 2x2)
func.func @no_tensor() -> tensor<i64> {
  // expected-error@+1 {{'topt.axis_constant' op has wrong 'values', expected tensor<2xi64>, got: i64}}
  %0 = "topt.axis_constant"() {values = 3, axes = array<i64: 0>} : () -> tensor<i64>
  return %0 : tensor<i64>
}

// -----

shard.grid @mesh(shape = 2x2)
func.func @unranked() -> tensor<*xi64> {
  // expected-error@+1 {{'topt.axis_constant' op has wrong 'values', expected a ranked tensor, got: tensor<2xi64>}}
  %0 = "topt.axis_constant"() {values = dense<[0, 4]> : tensor<2xi64>, axes = array<i64: 0>} : () -> tensor<*xi64>
  return %0 : tensor<*xi64>
}
