// RUN: tensoropt-opt %s -p 'build-training-step{loss=output:l optimizer=momentum freeze=fro* clip-norm=1 micro-batches=2}' | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK-SAME: topt.name = "x"}
// CHECK-SAME: {topt.id = [[W:[0-9]+]] : i64, topt.name = "w", topt.state = "parameter"}
// CHECK-SAME: topt.name = "frozen", topt.param}
// CHECK-SAME: {topt.follows = [[G:[0-9]+]] : i64, topt.id = {{[0-9]+}} : i64, topt.name = "w.gradient", topt.of = "w", topt.state = "gradient"}
// CHECK-SAME: topt.hyper = "learning_rate", {{.*}} topt.name = "learning_rate"}
// CHECK-SAME: {topt.follows = [[U:[0-9]+]] : i64, {{.*}} topt.name = "w.velocity", topt.of = "w", topt.state = "velocity"}
// CHECK-SAME: tensor<f32> {topt.name = "loss"}
// CHECK-SAME: {topt.follows = [[W]] : i64, topt.name = "w.new", topt.updates = "w"}
// CHECK-SAME: {topt.follows = [[U]] : i64, topt.name = "w.velocity.new", topt.updates = "w.velocity"}
// CHECK-SAME: topt.micro_batches = 2 : i64
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x"}, %w: tensor<8x2xf32> {topt.name = "w", topt.param}, %f: tensor<2xf32> {topt.name = "frozen", topt.param}) -> (tensor<f32> {topt.name = "l"}, tensor<4x8xf32> {topt.name = "other"}) {
    // CHECK: [[Y:%.+]] = "onnx.MatMul"([[ARG0:%\w+]], [[ARG1:%\w+]]) {topt.gradients = array<i64: [[MM:[0-9]+]], 0, [[DY:[0-9]+]], 0>, topt.id = [[MM]] : i64, topt.phase = "forward"}
    // CHECK-NEXT: [[Z:%.+]] = "onnx.Mul"([[Y]], [[ARG2:%\w+]])
    // CHECK-NEXT: [[L:%.+]] = "onnx.ReduceSum"([[Z]])
    // CHECK-NOT: onnx.Relu
    // CHECK: [[LOSS:%.+]] = "onnx.Identity"([[L]])
    // CHECK: dense<5.000000e-01> : tensor<f32>
    // CHECK: [[DYV:%.+]] = "onnx.Mul"({{.*}}, [[ARG2]]) {{.*}}topt.id = [[DY]] : i64, topt.phase = "backward"}
    // CHECK: [[D:%.+]] = "onnx.Gemm"([[ARG0]], [[DYV]]) {topt.follows = [[MM]] : i64, {{.*}}transA = 1
    // CHECK: [[DW:%.+]] = "onnx.Add"([[ARG3:%\w+]], [[D]]) {topt.gradient_of = "w", topt.id = [[G]] : i64, topt.phase = "backward"}
    // CHECK: [[G0:%.+]] = "onnx.Identity"([[DW]]) {topt.id = [[U]] : i64, topt.phase = "update"}
    // CHECK: [[GW:%.+]] = "onnx.Cast"([[G0]]) {to = 11 : i64, topt.follows = [[U]] : i64, {{.*}}topt.phase = "update"}
    // CHECK-NEXT: [[S:%.+]] = "onnx.ReduceSumSquare"([[GW]]) {keepdims = 0 : i64, topt.follows = [[U]] : i64, {{.*}}topt.phase = "update"}
    // CHECK-NEXT: "onnx.Sum"([[S]]) {{.*}}topt.norm
    // CHECK: [[NEW:%.+]] = "onnx.Sub"([[ARG1]], {{.*}}) {topt.follows = [[U]] : i64, {{.*}}topt.phase = "update"}
    // CHECK-NEXT: return [[LOSS]], [[NEW]], {{%.+}} :
    %0 = "onnx.MatMul"(%x, %w) : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
    %1 = "onnx.Mul"(%0, %f) : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
    %2 = "onnx.ReduceSum"(%1) {keepdims = 0 : i64} : (tensor<4x2xf32>) -> tensor<f32>
    %3 = "onnx.Relu"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
    return %2, %3 : tensor<f32>, tensor<4x8xf32>
  }
}
