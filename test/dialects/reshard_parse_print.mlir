// RUN: tensoropt-opt %s | filecheck %s

// Attributes are printed in the order of their names.
shard.grid @mesh(shape = 2x2)
// CHECK: func.func @main([[X:%\w+]]:
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // CHECK-NEXT: [[Y:%\w+]] = "topt.reshard"([[X]]) {dst = #topt.layout<@mesh, ["R", "P(sum)"]>, src = #topt.layout<@mesh, ["S(0)", "R"]>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %0 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["S(0)", "R"]>, dst = #topt.layout<@mesh, ["R", "P(sum)"]>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  // CHECK-NEXT: return [[Y]]
  return %0 : tensor<4x8xf32>
}
