// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

shard.grid @mesh(shape = 2x2)
func.func @unknown_mesh(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'topt.reshard' op layout 'src' names an unknown mesh, expected @mesh, got: @nowhere}}
  %0 = "topt.reshard"(%x) {src = #topt.layout<@nowhere, ["R", "R"]>, dst = #topt.layout<@mesh, ["R", "R"]>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @no_mesh(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'topt.reshard' op layout 'src' names an unknown mesh, expected shard.grid @mesh in the module, got: none}}
  %0 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["R"]>, dst = #topt.layout<@mesh, ["R"]>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

shard.grid @mesh(shape = 2x2)
func.func @too_few(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'topt.reshard' op layout 'src' has a wrong number of placements, expected 2 for mesh 2x2, got: 1}}
  %0 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["R"]>, dst = #topt.layout<@mesh, ["R", "R"]>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

shard.grid @mesh(shape = 2x2)
func.func @too_many(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'topt.reshard' op layout 'dst' has a wrong number of placements, expected 2 for mesh 2x2, got: 3}}
  %0 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["R", "R"]>, dst = #topt.layout<@mesh, ["R", "R", "R"]>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

shard.grid @mesh(shape = 2x2)
func.func @text(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'topt.reshard' op layout 'src' has a wrong placement, expected R, S(<dim>) or P(sum|max|min), got: 'banana'}}
  %0 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["R", "banana"]>, dst = #topt.layout<@mesh, ["R", "R"]>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

shard.grid @mesh(shape = 2x2)
func.func @reduction(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'topt.reshard' op layout 'src' has a wrong placement, expected R, S(<dim>) or P(sum|max|min), got: 'P(mean)'}}
  %0 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["R", "P(mean)"]>, dst = #topt.layout<@mesh, ["R", "R"]>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

shard.grid @mesh(shape = 2x2)
func.func @no_text(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'topt.reshard' op layout 'src' has a wrong placement, expected strings, got: ["R", 3]}}
  %0 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["R", 3]>, dst = #topt.layout<@mesh, ["R", "R"]>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

shard.grid @mesh(shape = 2x2)
func.func @dimension(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'topt.reshard' op layout 'src' does not fit tensor<4x8xf32> on mesh 2x2, expected a dimension below 2, got: S(7)}}
  %0 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["R", "S(7)"]>, dst = #topt.layout<@mesh, ["R", "R"]>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

shard.grid @mesh(shape = 2x2)
func.func @scalar(%x: tensor<f32>) -> tensor<f32> {
  // expected-error@+1 {{'topt.reshard' op layout 'src' does not fit tensor<f32> on mesh 2x2, expected a dimension below 0, got: S(0)}}
  %0 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["R", "S(0)"]>, dst = #topt.layout<@mesh, ["R", "R"]>} : (tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// -----

shard.grid @mesh(shape = 2x2)
func.func @uneven(%x: tensor<4x1xf32>) -> tensor<4x1xf32> {
  // expected-error@+1 {{'topt.reshard' op layout 'src' does not fit tensor<4x1xf32> on mesh 2x2, expected dimension 1 to divide by 2, got: 1}}
  %0 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["R", "S(1)"]>, dst = #topt.layout<@mesh, ["R", "R"]>} : (tensor<4x1xf32>) -> tensor<4x1xf32>
  return %0 : tensor<4x1xf32>
}

// -----

// Together, the axes would make more padding than a quarter of all parts.
shard.grid @mesh(shape = 2x2)
func.func @two_axes(%x: tensor<5x8xf32>) -> tensor<5x8xf32> {
  // expected-error@+1 {{'topt.reshard' op layout 'src' does not fit tensor<5x8xf32> on mesh 2x2, expected dimension 0 to divide by 4, got: 5}}
  %0 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["S(0)", "S(0)"]>, dst = #topt.layout<@mesh, ["R", "R"]>} : (tensor<5x8xf32>) -> tensor<5x8xf32>
  return %0 : tensor<5x8xf32>
}

// -----

shard.grid @mesh(shape = 2x2)
func.func @symbolic(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  // expected-error@+1 {{'topt.reshard' op layout 'src' does not fit tensor<?x8xf32> on mesh 2x2, expected dimension 0 whole or fixed by --dim, got: a symbolic size}}
  %0 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["S(0)", "R"]>, dst = #topt.layout<@mesh, ["R", "R"]>} : (tensor<?x8xf32>) -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}

// -----

shard.grid @mesh(shape = 2x2)
func.func @unranked(%x: tensor<*xf32>) -> tensor<*xf32> {
  // expected-error@+1 {{'topt.reshard' op layout 'src' does not fit tensor<*xf32> on mesh 2x2, expected R on every axis, got: [S(0), R]}}
  %0 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["S(0)", "R"]>, dst = #topt.layout<@mesh, ["R", "R"]>} : (tensor<*xf32>) -> tensor<*xf32>
  return %0 : tensor<*xf32>
}

// -----

shard.grid @mesh(shape = 2x2)
func.func @strings(%x: tensor<4x!onnx.String>) -> tensor<4x!onnx.String> {
  // expected-error@+1 {{'topt.reshard' op layout 'src' does not fit tensor<4x!onnx.String> on mesh 2x2, expected partial results only of numbers, got: [P(sum), R]}}
  %0 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["P(sum)", "R"]>, dst = #topt.layout<@mesh, ["R", "R"]>} : (tensor<4x!onnx.String>) -> tensor<4x!onnx.String>
  return %0 : tensor<4x!onnx.String>
}

// -----

// Above three axes, neighbours do the same: docs/decisions/0022.
shard.grid @mesh(shape = 2x2x2x2)
func.func @groups(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'topt.reshard' op layout 'src' does not fit tensor<4x8xf32> on mesh 2x2x2x2, expected at most 2 groups of neighbouring mesh axes that differ, got: [S(0), R, S(1), S(1)]}}
  %0 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["S(0)", "R", "S(1)", "S(1)"]>, dst = #topt.layout<@mesh, ["R", "R", "R", "R"]>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

shard.grid @mesh(shape = 2x2)
func.func @blocks(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'topt.reshard' op layout 'src' does not fit tensor<4x8xf32> on mesh 2x2, expected dimension 1 to divide by 2 in blocks of 2+1, got: 8}}
  %0 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["S(1 of 2+1)", "R"]>, dst = #topt.layout<@mesh, ["R", "R"]>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

shard.grid @mesh(shape = 2x2)
func.func @blocks_of_one_dimension(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'topt.reshard' op layout 'src' has a wrong placement, expected the same blocks and units on all axes that split one dimension, got: S(1 of 2) S(1)}}
  %0 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["S(1 of 2)", "S(1)"]>, dst = #topt.layout<@mesh, ["R", "R"]>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

shard.grid @mesh(shape = 2x2)
func.func @units(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'topt.reshard' op layout 'src' does not fit tensor<4x8xf32> on mesh 2x2, expected dimension 1 to divide by 2 in 3 units, got: 8}}
  %0 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["S(1 in 3)", "R"]>, dst = #topt.layout<@mesh, ["R", "R"]>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

shard.grid @mesh(shape = 2x2)
func.func @units_of_blocks(%x: tensor<4x9xf32>) -> tensor<4x9xf32> {
  // expected-error@+1 {{'topt.reshard' op layout 'src' does not fit tensor<4x9xf32> on mesh 2x2, expected dimension 1 to divide by 2 in blocks of 4+1+1 in 4+1+2 units, got: 9}}
  %0 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["S(1 of 4+1+1 in 4+1+2)", "R"]>, dst = #topt.layout<@mesh, ["R", "R"]>} : (tensor<4x9xf32>) -> tensor<4x9xf32>
  return %0 : tensor<4x9xf32>
}

// -----

shard.grid @mesh(shape = 2x2)
func.func @units_of_few_blocks(%x: tensor<4x12xf32>) -> tensor<4x12xf32> {
  // expected-error@+1 {{'topt.reshard' op layout 'src' has a wrong placement, expected units of 3 blocks, got: '1+1'}}
  %0 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["S(1 of 3 in 1+1)", "R"]>, dst = #topt.layout<@mesh, ["R", "R"]>} : (tensor<4x12xf32>) -> tensor<4x12xf32>
  return %0 : tensor<4x12xf32>
}

// -----

shard.grid @mesh(shape = 2x2)
func.func @units_of_one_dimension(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'topt.reshard' op layout 'src' has a wrong placement, expected the same blocks and units on all axes that split one dimension, got: S(1 in 4) S(1)}}
  %0 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["S(1 in 4)", "S(1)"]>, dst = #topt.layout<@mesh, ["R", "R"]>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}
