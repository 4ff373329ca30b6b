// RUN: tensoropt-opt %s -p add-rules,check-strategies --split-input-file --verify-diagnostics

module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<4x6xf32> {topt.layout = #topt.layout<@mesh, ["R"]>, topt.name = "x"}) -> (tensor<4x6xf32> {topt.layout = #topt.layout<@mesh, ["R"]>, topt.name = "y"}) {
    // expected-error@+1 {{'onnx.Relu' op its sharding rule does not offer [S(0)] -> [S(1)] on mesh 2, expected one of 3, such as}}
    %0 = "onnx.Relu"(%x) {topt.strategy = #topt.strategy<[#topt.layout<@mesh, ["S(0)"]>], [#topt.layout<@mesh, ["S(1)"]>]>} : (tensor<4x6xf32>) -> tensor<4x6xf32>
    return %0 : tensor<4x6xf32>
  }
}

// -----

module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<4x6xf32> {topt.layout = #topt.layout<@mesh, ["R"]>, topt.name = "x"}) -> (tensor<4x6xf32> {topt.layout = #topt.layout<@mesh, ["R"]>, topt.name = "y"}) {
    // expected-error@+1 {{'onnx.Relu' op has no topt.strategy, run search-strategies first (in pass 'check-strategies' after 'add-rules')}}
    %0 = "onnx.Relu"(%x) : (tensor<4x6xf32>) -> tensor<4x6xf32>
    return %0 : tensor<4x6xf32>
  }
}

// -----

module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  // expected-error@+1 {{'func.func' op has no topt.device in its module, expected search-strategies to be run first}}
  func.func @main(%x: tensor<4xf32> {topt.layout = #topt.layout<@mesh, ["R"]>, topt.name = "x"}) -> (tensor<4xf32> {topt.layout = #topt.layout<@mesh, ["R"]>, topt.name = "y"}) {
    return %x : tensor<4xf32>
  }
}
