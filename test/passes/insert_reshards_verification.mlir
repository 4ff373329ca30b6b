// RUN: tensoropt-opt %s -p insert-reshards --split-input-file --verify-diagnostics

shard.grid @mesh(shape = 2)
// expected-error@+1 {{'func.func' op argument 0 has no topt.layout, run search-strategies first}}
func.func @main(%x: tensor<4x8xf32> {topt.name = "x"}) -> (tensor<4x8xf32> {topt.name = "y", topt.layout = #topt.layout<@mesh, ["R"]>}) {
  return %x : tensor<4x8xf32>
}

// -----

shard.grid @mesh(shape = 2)
func.func @main(%x: tensor<4x8xf32> {topt.name = "x", topt.layout = #topt.layout<@mesh, ["R"]>}) -> (tensor<4x8xf32> {topt.name = "y", topt.layout = #topt.layout<@mesh, ["R"]>}) {
  // expected-error@+1 {{'onnx.Relu' op has no topt.strategy, run search-strategies first}}
  %0 = "onnx.Relu"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}
