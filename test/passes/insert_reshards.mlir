// RUN: tensoropt-opt %s -p insert-reshards | filecheck %s

shard.grid @mesh(shape = 2)

// CHECK-LABEL: func.func @main
func.func @main(%x: tensor<4x8xf32> {topt.name = "x", topt.layout = #topt.layout<@mesh, ["S(0)"]>}) -> (tensor<4x8xf32> {topt.name = "y", topt.layout = #topt.layout<@mesh, ["R"]>}) {
  // The layouts agree: nothing is inserted.
  // CHECK-NEXT: [[RELU:%\w+]] = "onnx.Relu"([[ARG0:%\w+]])
  %0 = "onnx.Relu"(%x) {topt.strategy = #topt.strategy<[#topt.layout<@mesh, ["S(0)"]>], [#topt.layout<@mesh, ["S(0)"]>]>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  // One reshard per use, before the op that wants it.
  // CHECK-NEXT: [[RESHARD:%\w+]] = "topt.reshard"([[RELU]]) {dst = #topt.layout<@mesh, ["S(1)"]>, src = #topt.layout<@mesh, ["S(0)"]>}
  // CHECK-NEXT: [[RESHARD_2:%\w+]] = "topt.reshard"([[RELU]]) {dst = #topt.layout<@mesh, ["S(1)"]>, src = #topt.layout<@mesh, ["S(0)"]>}
  // CHECK-NEXT: [[ADD:%\w+]] = "onnx.Add"([[RESHARD]], [[RESHARD_2]])
  %1 = "onnx.Add"(%0, %0) {topt.strategy = #topt.strategy<[#topt.layout<@mesh, ["S(1)"]>, #topt.layout<@mesh, ["S(1)"]>], [#topt.layout<@mesh, ["S(1)"]>]>} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  // CHECK-NEXT: [[RESHARD_3:%\w+]] = "topt.reshard"([[ADD]]) {dst = #topt.layout<@mesh, ["R"]>, src = #topt.layout<@mesh, ["S(1)"]>}
  // CHECK-NEXT: return [[RESHARD_3]]
  return %1 : tensor<4x8xf32>
}
