// RUN: tensoropt-opt %s -p partition --split-input-file --verify-diagnostics

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
    // expected-error@-1 {{'func.func' op argument 0 has a layout that does not divide tensor<?x16xf32>, [S(0)]: dimension 0 is symbolic, expected it whole or fixed by --dim}}
    return %x : tensor<?x16xf32>
  }
}

// -----

module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 4)
  func.func @main(%x: tensor<6x16xf32> {topt.name = "x", topt.layout = #topt.layout<@mesh, ["R"]>}) -> (tensor<6x16xf32> {topt.name = "y", topt.layout = #topt.layout<@mesh, ["S(0)"]>}) {
    // expected-error@-1 {{'func.func' op result 0 has a layout that does not divide tensor<6x16xf32>, [S(0)]: dimension 0 of size 6 has no 4 equal pieces}}
    return %x : tensor<6x16xf32>
  }
}

// -----

module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2x2x2x2)
  func.func @main(%x: tensor<8x16xf32> {topt.name = "x", topt.layout = #topt.layout<@mesh, ["S(0)", "R", "S(1)", "S(1)"]>}) -> (tensor<8x16xf32> {topt.name = "y", topt.layout = #topt.layout<@mesh, ["S(0)", "R", "S(1)", "S(1)"]>}) {
    // expected-error@-1 {{'func.func' op argument 0 has a layout that does not divide tensor<8x16xf32>, [S(0), R, S(1), S(1)]: more than 2 groups of neighbouring mesh axes differ}}
    return %x : tensor<8x16xf32>
  }
}
