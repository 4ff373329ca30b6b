// RUN: tensoropt-opt %s | filecheck %s

// CHECK: module attributes {topt.pipeline = {time_s = 1.000000e+00 : f64}, topt.places = array<i64: 0, 1>, topt.schedule = ["F0 B0", "F0.1 B0.1"]}
module attributes {topt.pipeline = {time_s = 1.0 : f64}, topt.places = array<i64: 0, 1>, topt.schedule = ["F0 B0", "F0.1 B0.1"]} {
  shard.grid @mesh(shape = 1)
  func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    // CHECK: "onnx.Relu"({{.*}}) {topt.chunk = 1 : i64, topt.phase = "forward"}
    %0 = "onnx.Relu"(%x) {topt.chunk = 1 : i64, topt.phase = "forward"} : (tensor<4xf32>) -> tensor<4xf32>
    // CHECK: shard.all_reduce %0 on @mesh {topt.stages}
    %1 = shard.all_reduce %0 on @mesh grid_axes = [] {topt.stages} : tensor<4xf32> -> tensor<4xf32>
    return %1 : tensor<4xf32>
  }
}
