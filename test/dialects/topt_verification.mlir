// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

shard.grid @mesh(shape = 2x2)
func.func @type(%x: tensor<4x8xf32>) -> tensor<4x9xf32> {
  // expected-error@+1 {{'topt.reshard' op changes the type, expected tensor<4x8xf32>, got: tensor<4x9xf32>}}
  %0 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["S(0)", "R"]>, dst = #topt.layout<@mesh, ["R", "R"]>} : (tensor<4x8xf32>) -> tensor<4x9xf32>
  return %0 : tensor<4x9xf32>
}

// -----

shard.grid @mesh(shape = 2x2)
func.func @rank(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'topt.reshard' op 'dst' has 1 placements, expected one per axis of mesh 2x2}}
  %0 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["S(0)", "R"]>, dst = #topt.layout<@mesh, ["R"]>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

shard.grid @mesh(shape = 2x2)
func.func @uneven(%x: tensor<4x9xf32>) -> tensor<4x9xf32> {
  // expected-error@+1 {{'topt.reshard' op 'src' [S(1), R] does not divide tensor<4x9xf32> on mesh 2x2}}
  %0 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["S(1)", "R"]>, dst = #topt.layout<@mesh, ["R", "R"]>} : (tensor<4x9xf32>) -> tensor<4x9xf32>
  return %0 : tensor<4x9xf32>
}

// -----

shard.grid @mesh(shape = 2)
func.func @text(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'topt.reshard' op 'dst' placement: expected R, S(<dim>) or P(sum|max|min), got: 'Q'}}
  %0 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["R"]>, dst = #topt.layout<@mesh, ["Q"]>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @mesh(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'topt.reshard' op 'src' the module has no shard.grid, run search-strategies first}}
  %0 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["R"]>, dst = #topt.layout<@mesh, ["R"]>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @values() -> tensor<2xi64> {
  // expected-error@+1 {{'topt.axis_constant' op 'values' must be shaped Nxtensor<2xi64>, expected one result per position}}
  %0 = "topt.axis_constant"() {values = dense<[0, 4]> : tensor<2xi64>, axes = array<i64: 0>} : () -> tensor<2xi64>
  return %0 : tensor<2xi64>
}

// -----

// expected-error@+1 {{expected base attribute 'builtin.array' but got 'builtin.integer'}}
func.func private @param() attributes {topt.layout = #topt.layout<@mesh, 3>}
