// RUN: tensoropt-opt %s -p insert-reshards | filecheck %s

shard.grid @mesh(shape = 2)

// CHECK-LABEL: func.func @main
func.func @main(%x: tensor<4x8xf32> {topt.name = "x", topt.layout = #topt.layout<@mesh, ["S(0)"]>}) -> (tensor<4x8xf32> {topt.name = "y", topt.layout = #topt.layout<@mesh, ["R"]>}) {
  // The layouts agree: nothing is inserted.
  // CHECK-NEXT: %0 = "onnx.Relu"(%arg0)
  %0 = "onnx.Relu"(%x) {topt.strategy = #topt.strategy<[#topt.layout<@mesh, ["S(0)"]>], [#topt.layout<@mesh, ["S(0)"]>]>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  // One reshard per use, before the op that wants it.
  // CHECK-NEXT: %1 = "topt.reshard"(%0) {dst = #topt.layout<@mesh, ["S(1)"]>, src = #topt.layout<@mesh, ["S(0)"]>}
  // CHECK-NEXT: %2 = "topt.reshard"(%0) {dst = #topt.layout<@mesh, ["S(1)"]>, src = #topt.layout<@mesh, ["S(0)"]>}
  // CHECK-NEXT: %3 = "onnx.Add"(%1, %2)
  %1 = "onnx.Add"(%0, %0) {topt.strategy = #topt.strategy<[#topt.layout<@mesh, ["S(1)"]>, #topt.layout<@mesh, ["S(1)"]>], [#topt.layout<@mesh, ["S(1)"]>]>} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  // CHECK-NEXT: %4 = "topt.reshard"(%3) {dst = #topt.layout<@mesh, ["R"]>, src = #topt.layout<@mesh, ["S(1)"]>}
  // CHECK-NEXT: return %4
  return %1 : tensor<4x8xf32>
}
