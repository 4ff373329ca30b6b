// RUN: tensoropt-opt %s | filecheck %s

shard.grid @mesh(shape = 2x2)
func.func @main(%x: tensor<4x3xf32>, %rows: tensor<4x2xi64>) -> tensor<?x3xf32> {
  // CHECK: [[A:%\w+]] = "topt.all_to_all_rows"(%{{.*}}, %{{.*}}) {grid_axes = array<i16: 1, 0>} : (tensor<4x3xf32>, tensor<4x2xi64>) -> tensor<?x3xf32>
  %0 = "topt.all_to_all_rows"(%x, %rows) {grid_axes = array<i16: 1, 0>} : (tensor<4x3xf32>, tensor<4x2xi64>) -> tensor<?x3xf32>
  // CHECK-NEXT: return [[A]]
  return %0 : tensor<?x3xf32>
}
