// RUN: tensoropt-opt %s | filecheck %s

shard.grid @mesh(shape = 2x2)
func.func @main(%x: tensor<4xi64>) -> tensor<4xi64> {
  // CHECK: [[A:%\w+]] = "topt.collective_permute"({{.*}}) {grid_axes = array<i16: 1, 0>, sources = array<i64: 0, 2, 1, 3>} : (tensor<4xi64>) -> tensor<4xi64>
  %0 = "topt.collective_permute"(%x) {sources = array<i64: 0, 2, 1, 3>, grid_axes = array<i16: 1, 0>} : (tensor<4xi64>) -> tensor<4xi64>
  // CHECK-NEXT: return [[A]]
  return %0 : tensor<4xi64>
}
