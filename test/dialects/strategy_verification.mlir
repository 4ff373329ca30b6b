// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

shard.grid @mesh(shape = 2)
func.func @operands(%x: tensor<4x8xf32>, %y: tensor<8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'onnx.Add' op has a topt.strategy with a wrong number of operands, expected 2, got: 1}}
  %0 = "onnx.Add"(%x, %y) {topt.strategy = #topt.strategy<[#topt.layout<@mesh, ["R"]>], [#topt.layout<@mesh, ["R"]>]>} : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

shard.grid @mesh(shape = 2)
func.func @results(%x: tensor<4x8xf32>, %y: tensor<8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'onnx.Add' op has a topt.strategy with a wrong number of results, expected 1, got: 2}}
  %0 = "onnx.Add"(%x, %y) {topt.strategy = #topt.strategy<[#topt.layout<@mesh, ["R"]>, #topt.layout<@mesh, ["R"]>], [#topt.layout<@mesh, ["R"]>, #topt.layout<@mesh, ["R"]>]>} : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

shard.grid @mesh(shape = 2)
func.func @operand(%x: tensor<4x8xf32>, %y: tensor<8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'onnx.Add' op layout of operand 1 does not fit tensor<8xf32> on mesh 2, expected a dimension below 1, got: S(1)}}
  %0 = "onnx.Add"(%x, %y) {topt.strategy = #topt.strategy<[#topt.layout<@mesh, ["S(0)"]>, #topt.layout<@mesh, ["S(1)"]>], [#topt.layout<@mesh, ["S(0)"]>]>} : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

shard.grid @mesh(shape = 2)
func.func @result(%x: tensor<4x8xf32>, %y: tensor<8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'onnx.Add' op layout of result 0 has a wrong number of placements, expected 1 for mesh 2, got: 2}}
  %0 = "onnx.Add"(%x, %y) {topt.strategy = #topt.strategy<[#topt.layout<@mesh, ["R"]>, #topt.layout<@mesh, ["R"]>], [#topt.layout<@mesh, ["R", "R"]>]>} : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

shard.grid @mesh(shape = 2)
func.func @no_layout(%x: tensor<4x8xf32>, %y: tensor<8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'onnx.Add' op layout of operand 1 is of the wrong kind, expected #topt.layout, got: "R"}}
  %0 = "onnx.Add"(%x, %y) {topt.strategy = #topt.strategy<[#topt.layout<@mesh, ["R"]>, "R"], [#topt.layout<@mesh, ["R"]>]>} : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

shard.grid @mesh(shape = 2)
func.func @kind(%x: tensor<4x8xf32>, %y: tensor<8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'onnx.Add' op has the wrong kind of topt.strategy, expected #topt.strategy, got: #topt.layout<@mesh, ["R"]>}}
  %0 = "onnx.Add"(%x, %y) {topt.strategy = #topt.layout<@mesh, ["R"]>} : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

// What a region reads from outside counts as operands, behind the others.
shard.grid @mesh(shape = 2)
func.func @captured(%c: tensor<i1>, %x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{'onnx.If' op has a topt.strategy with a wrong number of operands, expected 2, got: 1}}
  %0 = "onnx.If"(%c) ({
    "onnx.Yield"(%x) : (tensor<4xf32>) -> ()
  }, {
    "onnx.Yield"(%x) : (tensor<4xf32>) -> ()
  }) {topt.regions = ["else_branch", "then_branch"], topt.strategy = #topt.strategy<[#topt.layout<@mesh, ["R"]>], [#topt.layout<@mesh, ["R"]>]>} : (tensor<i1>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
