// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

shard.grid @mesh(shape = 2x2)
func.func @type(%x: tensor<4x8xf32>) -> tensor<4x1xf32> {
  // expected-error@+1 {{'topt.reshard' op changes the type, expected tensor<4x8xf32>, got: tensor<4x1xf32>}}
  %0 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["S(0)", "R"]>, dst = #topt.layout<@mesh, ["R", "R"]>} : (tensor<4x8xf32>) -> tensor<4x1xf32>
  return %0 : tensor<4x1xf32>
}

// -----

shard.grid @mesh(shape = 2x2)
func.func @source(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'topt.reshard' op layout 'src' does not fit tensor<4x8xf32> on mesh 2x2, expected a dimension below 2, got: S(2)}}
  %0 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["S(2)", "R"]>, dst = #topt.layout<@mesh, ["R", "R"]>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

shard.grid @mesh(shape = 2x2)
func.func @destination(%x: tensor<4x1xf32>) -> tensor<4x1xf32> {
  // expected-error@+1 {{'topt.reshard' op layout 'dst' does not fit tensor<4x1xf32> on mesh 2x2, expected dimension 1 to divide by 2, got: 1}}
  %0 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["R", "R"]>, dst = #topt.layout<@mesh, ["S(1)", "R"]>} : (tensor<4x1xf32>) -> tensor<4x1xf32>
  return %0 : tensor<4x1xf32>
}
