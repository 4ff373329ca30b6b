// RUN: tensoropt-opt %s -p add-rules,partition --split-input-file --verify-diagnostics

module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 4)
  func.func @main(%x: tensor<8x16xf32> {topt.name = "x", topt.layout = #topt.layout<@mesh, ["S(0)"]>}) -> (tensor<8x16xf32> {topt.name = "y", topt.layout = #topt.layout<@mesh, ["S(1)"]>}) {
    // expected-error@+1 {{'onnx.Relu' op has a strategy its sharding rule does not offer on mesh 4: [S(0)], ->, [S(1)]}}
    %0 = "onnx.Relu"(%x) {topt.strategy = #topt.strategy<[#topt.layout<@mesh, ["S(0)"]>], [#topt.layout<@mesh, ["S(1)"]>]>} : (tensor<8x16xf32>) -> tensor<8x16xf32>
    return %0 : tensor<8x16xf32>
  }
}

// -----

module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 4)
  func.func @main(%x: tensor<8x16xf32> {topt.name = "x", topt.layout = #topt.layout<@mesh, ["S(0)"]>}) -> (tensor<8x16xf32> {topt.name = "y", topt.layout = #topt.layout<@mesh, ["S(1)"]>}) {
    // expected-error@-1 {{'func.func' op the module has no topt.device, run search-strategies first}}
    return %x : tensor<8x16xf32>
  }
}

// -----

module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 4)
  func.func @main(%x: tensor<8x16xf32> {topt.name = "x", topt.layout = #topt.layout<@mesh, ["S(0)"]>}) -> (tensor<8x16xf32> {topt.name = "y"}) {
    // expected-error@-1 {{'func.func' op result 0 has no topt.layout, run search-strategies first}}
    return %x : tensor<8x16xf32>
  }
}

// -----

module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 4)
  func.func @main(%x: tensor<?x16xf32> {topt.name = "x", topt.layout = #topt.layout<@mesh, ["S(0)"]>}) -> (tensor<?x16xf32> {topt.name = "y", topt.layout = #topt.layout<@mesh, ["S(0)"]>}) {
    // expected-error@-1 {{'func.func' op layout of argument 0 does not fit tensor<?x16xf32> on mesh 4, expected dimension 0 whole or fixed by --dim, got: a symbolic size}}
    return %x : tensor<?x16xf32>
  }
}

// -----

module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 4)
  func.func @main(%x: tensor<5x16xf32> {topt.name = "x", topt.layout = #topt.layout<@mesh, ["R"]>}) -> (tensor<5x16xf32> {topt.name = "y", topt.layout = #topt.layout<@mesh, ["S(0)"]>}) {
    // expected-error@-1 {{'func.func' op layout of result 0 does not fit tensor<5x16xf32> on mesh 4, expected dimension 0 to divide by 4, got: 5}}
    return %x : tensor<5x16xf32>
  }
}

// -----

module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2x2x2x2)
  func.func @main(%x: tensor<8x16xf32> {topt.name = "x", topt.layout = #topt.layout<@mesh, ["S(0)", "R", "S(1)", "S(1)"]>}) -> (tensor<8x16xf32> {topt.name = "y", topt.layout = #topt.layout<@mesh, ["S(0)", "R", "S(1)", "S(1)"]>}) {
    // expected-error@-1 {{'func.func' op layout of argument 0 does not fit tensor<8x16xf32> on mesh 2x2x2x2, expected at most 2 groups of neighbouring mesh axes that differ, got: [S(0), R, S(1), S(1)]}}
    return %x : tensor<8x16xf32>
  }
}

// -----

module attributes {topt.opset = {ai.onnx = 20 : i64}, topt.device = "cpu"} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<4x6xf32> {topt.layout = #topt.layout<@mesh, ["R"]>, topt.name = "x"}) -> (tensor<4x6xf32> {topt.layout = #topt.layout<@mesh, ["R"]>, topt.name = "y"}) {
    // Softmax over a split dimension is no plain copy: an edited rule may not split what its own does not.
    // expected-error@+1 {{'onnx.Softmax' op has a topt.rule that allows more than the rule of its operator, which is no plain copy on a rank; expected a rule that splits less}}
    %0 = "onnx.Softmax"(%x) {axis = 1 : i64, topt.rule = #topt.rule<"(i, j) -> (i, j)", ["i=4", "j=6"], {linear = [array<i64: 0>]}>, topt.strategy = #topt.strategy<[#topt.layout<@mesh, ["R"]>], [#topt.layout<@mesh, ["R"]>]>} : (tensor<4x6xf32>) -> tensor<4x6xf32>
    return %0 : tensor<4x6xf32>
  }
}

// -----

module attributes {topt.opset = {ai.onnx = 20 : i64}, topt.device = "cpu"} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<4x6xf32> {topt.layout = #topt.layout<@mesh, ["S(0)"]>, topt.name = "x"}) -> (tensor<4x6xf32> {topt.layout = #topt.layout<@mesh, ["S(0)"]>, topt.name = "y"}) {
    // What the rule of the operator offers, and the one that is written does not.
    // expected-error@+1 {{'onnx.Relu' op has a strategy its sharding rule does not offer on mesh 2: [S(0)], ->, [S(0)]}}
    %0 = "onnx.Relu"(%x) {topt.rule = #topt.rule<"(i, j) -> (i, j)", ["i=4 whole", "j=6"], {}>, topt.strategy = #topt.strategy<[#topt.layout<@mesh, ["S(0)"]>], [#topt.layout<@mesh, ["S(0)"]>]>} : (tensor<4x6xf32>) -> tensor<4x6xf32>
    return %0 : tensor<4x6xf32>
  }
}

// -----

module attributes {topt.opset = {ai.onnx = 20 : i64}, topt.device = "cpu"} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<4x6xf32> {topt.layout = #topt.layout<@mesh, ["S(0)"]>, topt.name = "x"}) -> (tensor<4x6xf32> {topt.layout = #topt.layout<@mesh, ["S(0)"]>, topt.name = "y"}) {
    // No plain copy splits two loops by one axis.
    // expected-error@+1 {{'onnx.Relu' op has a topt.rule that allows more than the rule of its operator, which is no plain copy on a rank; expected a rule that splits less}}
    %0 = "onnx.Relu"(%x) {topt.rule = #topt.rule<"(i, j) -> (i, j)", ["i=4", "j=6"], {joint = [array<i64: 0, 1>]}>, topt.strategy = #topt.strategy<[#topt.layout<@mesh, ["S(0)"]>], [#topt.layout<@mesh, ["S(0)"]>]>} : (tensor<4x6xf32>) -> tensor<4x6xf32>
    return %0 : tensor<4x6xf32>
  }
}
