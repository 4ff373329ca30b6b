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
  func.func @main(%x: tensor<6x16xf32> {topt.name = "x", topt.layout = #topt.layout<@mesh, ["R"]>}) -> (tensor<6x16xf32> {topt.name = "y", topt.layout = #topt.layout<@mesh, ["S(0)"]>}) {
    // expected-error@-1 {{'func.func' op layout of result 0 does not fit tensor<6x16xf32> on mesh 4, expected dimension 0 to divide by 4, got: 6}}
    return %x : tensor<6x16xf32>
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
