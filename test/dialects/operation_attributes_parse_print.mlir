// RUN: tensoropt-opt %s | filecheck %s

// All that an operation carries but its strategy.
func.func @main(%x: tensor<4xf32> {topt.name = "x"}) {
  // CHECK: "onnx.Relu"({{.*}}) {topt.gradients = array<i64: 1, 0, 2, 0>, topt.id = 1 : i64, topt.phase = "forward"}
  %0 = "onnx.Relu"(%x) {topt.gradients = array<i64: 1, 0, 2, 0>, topt.id = 1 : i64, topt.phase = "forward"} : (tensor<4xf32>) -> tensor<4xf32>
  // CHECK: "onnx.Relu"({{.*}}) {topt.follows = 1 : i64, topt.gradient_of = "x", topt.id = 2 : i64, topt.phase = "backward"}
  %1 = "onnx.Relu"(%x) {topt.follows = 1 : i64, topt.gradient_of = "x", topt.id = 2 : i64, topt.phase = "backward"} : (tensor<4xf32>) -> tensor<4xf32>
  // CHECK: "onnx.Relu"({{.*}}) {topt.follows = 1 : i64, topt.id = 3 : i64, topt.phase = "recompute", topt.repeats = 1 : i64}
  %2 = "onnx.Relu"(%x) {topt.follows = 1 : i64, topt.id = 3 : i64, topt.phase = "recompute", topt.repeats = 1 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  // CHECK: "onnx.Relu"({{.*}}) {topt.id = 4 : i64, topt.norm, topt.phase = "update"}
  %3 = "onnx.Relu"(%x) {topt.id = 4 : i64, topt.norm, topt.phase = "update"} : (tensor<4xf32>) -> tensor<4xf32>
  %c = "onnx.Constant"() {value = dense<true> : tensor<i1>} : () -> tensor<i1>
  // CHECK: }) {topt.regions = ["then_branch"]}
  %i = "onnx.If"(%c) ({
    "onnx.Yield"(%x) : (tensor<4xf32>) -> ()
  }) {topt.regions = ["then_branch"]} : (tensor<i1>) -> tensor<4xf32>
  return
}
