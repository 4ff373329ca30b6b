// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{'shard.grid' op has an axis without a size, expected 1 or more, got: 2x?}}
shard.grid @mesh(shape = 2x?)

// -----

// expected-error@+1 {{'shard.grid' op has an axis without a size, expected 1 or more, got: 0x2}}
shard.grid @mesh(shape = 0x2)

// -----

shard.grid @mesh(shape = 2)
// expected-note@-1 {{see existing symbol definition here}}
// expected-error@+1 {{redefinition of symbol named 'mesh'}}
shard.grid @mesh(shape = 4)

// -----

// Meshes of other names are MLIR's business.
shard.grid @other(shape = 2x?)
shard.grid @mesh(shape = 2)
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{Undefined required grid symbol "nowhere"}}
  %0 = shard.all_reduce %x on @nowhere grid_axes = [0] : tensor<4xf32> -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
