// RUN: tensoropt-opt %s | filecheck %s

// One axis, and several.
// CHECK: shard.grid @mesh(shape = 2x4)
shard.grid @mesh(shape = 2x4)
// CHECK: shard.grid @other(shape = 8)
shard.grid @other(shape = 8)
