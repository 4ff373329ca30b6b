// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

shard.grid @mesh(shape = 4)
// expected-error@+1 {{'func.func' op layout of argument 0 names an unknown mesh, expected @mesh, got: @nowhere}}
func.func @main(%x: tensor<6xf32> {topt.layout = #topt.layout<@nowhere, ["R"]>}) -> (tensor<6xf32>) {
  return %x : tensor<6xf32>
}

// -----

shard.grid @mesh(shape = 4)
// expected-error@+1 {{'func.func' op layout of argument 1 does not fit tensor<6xf32> on mesh 4, expected a dimension below 1, got: S(1)}}
func.func @main(%x: tensor<6xf32>, %y: tensor<6xf32> {topt.layout = #topt.layout<@mesh, ["S(1)"]>}) -> (tensor<6xf32>) {
  return %x : tensor<6xf32>
}

// -----

shard.grid @mesh(shape = 4)
// expected-error@+1 {{'func.func' op layout of argument 0 does not fit tensor<5xf32> on mesh 4, expected dimension 0 to divide by 4, got: 5}}
func.func @main(%x: tensor<5xf32> {topt.layout = #topt.layout<@mesh, ["S(0)"]>}) -> (tensor<5xf32>) {
  %0 = "onnx.Relu"(%x) {topt.strategy = #topt.strategy<[#topt.layout<@mesh, ["R"]>], [#topt.layout<@mesh, ["R"]>]>} : (tensor<5xf32>) -> tensor<5xf32>
  return %0 : tensor<5xf32>
}

// -----

shard.grid @mesh(shape = 4)
// expected-error@+1 {{'func.func' op layout of result 0 does not fit tensor<5xf32> on mesh 4, expected dimension 0 to divide by 4, got: 5}}
func.func @main(%x: tensor<5xf32>) -> (tensor<5xf32> {topt.layout = #topt.layout<@mesh, ["S(0)"]>}) {
  %0 = "onnx.Relu"(%x) {topt.strategy = #topt.strategy<[#topt.layout<@mesh, ["R"]>], [#topt.layout<@mesh, ["R"]>]>} : (tensor<5xf32>) -> tensor<5xf32>
  return %0 : tensor<5xf32>
}

// -----

shard.grid @mesh(shape = 4)
// expected-error@+1 {{'func.func' op layout of result 0 has a wrong placement, expected R, S(<dim>) or P(sum|max|min), got: 'S'}}
func.func @main(%x: tensor<6xf32>) -> (tensor<6xf32> {topt.layout = #topt.layout<@mesh, ["S"]>}) {
  return %x : tensor<6xf32>
}
