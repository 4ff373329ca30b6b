// RUN: tensoropt-opt %s -p optimize-reshards | filecheck %s

shard.grid @mesh(shape = 2)

// CHECK-LABEL: func.func @main
func.func @main(%x: tensor<4x8xf32> {topt.name = "x"}) -> (tensor<4x8xf32> {topt.name = "y"}) {
  // Two equal reshards become one, a third to another layout stays.
  // CHECK-NEXT: %0 = "topt.reshard"(%arg0) {dst = #topt.layout<@mesh, ["S(1)"]>
  // CHECK-NEXT: %1 = "topt.reshard"(%arg0) {dst = #topt.layout<@mesh, ["R"]>
  // CHECK-NEXT: %2 = "onnx.Add"(%0, %0)
  // CHECK-NEXT: %3 = "onnx.Add"(%2, %1)
  %0 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["S(0)"]>, dst = #topt.layout<@mesh, ["S(1)"]>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %1 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["S(0)"]>, dst = #topt.layout<@mesh, ["S(1)"]>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %2 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["S(0)"]>, dst = #topt.layout<@mesh, ["R"]>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %3 = "onnx.Add"(%0, %1) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %4 = "onnx.Add"(%3, %2) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  // A reshard to the same layout does nothing.
  // CHECK-NEXT: return %3
  %5 = "topt.reshard"(%4) {src = #topt.layout<@mesh, ["S(1)"]>, dst = #topt.layout<@mesh, ["S(1)"]>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %5 : tensor<4x8xf32>
}
