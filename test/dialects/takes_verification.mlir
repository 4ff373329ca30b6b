// RUN: tensoropt-opt %s --verify-diagnostics --split-input-file

module {
  func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {
    %0 = "onnx.Relu"(%a) {topt.takes = {compute_s = 1.000000e-06 : f64, node = 0 : i64, sent_s = 0.000000e+00 : f64}} : (tensor<8xf32>) -> tensor<8xf32>
    // expected-error@+1 {{'onnx.Relu' op has a wrong topt.takes, expected an i64 node, and f64 compute_s and sent_s, finite and at least 0, got: compute_s = 1e-06, node = 0}}
    %1 = "onnx.Relu"(%0) {topt.takes = {compute_s = 1.000000e-06 : f64, node = 0 : i64}} : (tensor<8xf32>) -> tensor<8xf32>
    return %1 : tensor<8xf32>
  }
}

// -----

module {
  func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {
    // expected-error@+1 {{'onnx.Relu' op has a wrong topt.takes, expected an i64 node, and f64 compute_s and sent_s, finite and at least 0, got: compute_s = 1e-06, node = 0, sent_s = -1.0}}
    %0 = "onnx.Relu"(%a) {topt.takes = {compute_s = 1.000000e-06 : f64, node = 0 : i64, sent_s = -1.000000e+00 : f64}} : (tensor<8xf32>) -> tensor<8xf32>
    return %0 : tensor<8xf32>
  }
}
