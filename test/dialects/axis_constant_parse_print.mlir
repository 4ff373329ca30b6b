// RUN: tensoropt-opt %s | filecheck %s

// Along one axis, and along both.
shard.grid @mesh(shape = 2x2)
func.func @main() -> (tensor<i64>, tensor<1xf32>) {
  // CHECK: [[A:%\w+]] = "topt.axis_constant"() {axes = array<i64: 1>, values = dense<[0, 4]> : tensor<2xi64>} : () -> tensor<i64>
  %0 = "topt.axis_constant"() {values = dense<[0, 4]> : tensor<2xi64>, axes = array<i64: 1>} : () -> tensor<i64>
  // CHECK-NEXT: [[B:%\w+]] = "topt.axis_constant"() {axes = array<i64: 0, 1>, values = dense<{{.*}}> : tensor<4x1xf32>} : () -> tensor<1xf32>
  %1 = "topt.axis_constant"() {values = dense<[[0.0], [1.0], [2.0], [3.0]]> : tensor<4x1xf32>, axes = array<i64: 0, 1>} : () -> tensor<1xf32>
  // CHECK-NEXT: return [[A]], [[B]]
  return %0, %1 : tensor<i64>, tensor<1xf32>
}
