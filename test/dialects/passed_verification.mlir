// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{'builtin.module' op has an unknown topt.passed, expected one of import, prepare, train, rules, search, reshard, partition, got: "serch"}}
module attributes {topt.passed = "serch"} {
}

// -----

// expected-error@+1 {{'builtin.module' op has the wrong kind of topt.search, expected a string, an i64 or an f64 per name, got: {name = [1]}}}
module attributes {topt.search = {name = [1]}} {
}

// -----

module {
  // expected-error@+1 {{'topt.point' op has the wrong kind of 'mesh', expected array<i64>, got: "2"}}
  "topt.point"() {communication_s = 0.0 : f64, compute_s = 1.0 : f64, mesh = "2", static_bytes = 1 : i64, transient_bytes = 1 : i64} : () -> ()
}

// -----

// Numbers are those of a function: another may have the same, and does not refer to them.
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<4xf32> {topt.id = 1 : i64, topt.name = "x"}) -> (tensor<4xf32> {topt.name = "y"}) {
    return %x : tensor<4xf32>
  }
  func.func @other(%x: tensor<4xf32> {topt.id = 1 : i64, topt.name = "x"}) -> (tensor<4xf32> {topt.follows = 1 : i64, topt.name = "y"}) {
    return %x : tensor<4xf32>
  }
  // expected-error@+1 {{dangling topt.follows, expected a topt.id, got: 1}}
  func.func @third(%x: tensor<4xf32> {topt.name = "x"}) -> (tensor<4xf32> {topt.follows = 1 : i64, topt.name = "y"}) {
    return %x : tensor<4xf32>
  }
}

// -----

// expected-error@+1 {{'builtin.module' op has the wrong kind of topt.pins, expected a list of strings per name, got: {pin = "w=R"}}}
module attributes {topt.pins = {pin = "w=R"}} {
}
