// RUN: tensoropt-opt %s -p "fold-constants{limit=3}" | filecheck %s

// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<1x2x3x4xf32> {topt.name = "x"}, %y: tensor<5xf32> {topt.name = "y"}) -> (tensor<4xi64> {topt.name = "a"}, tensor<3xi64> {topt.name = "b"}) {
    %t = "onnx.Constant"() {value = dense<2> : tensor<i64>} : () -> tensor<i64>
    %u = "onnx.Constant"() {value = dense<[1, 2, 3, 4]> : tensor<4xi64>} : () -> tensor<4xi64>
    %v = "onnx.Constant"() {value = dense<[1, 2, 3]> : tensor<3xi64>} : () -> tensor<3xi64>
    // CHECK: "onnx.Mul"
    %0 = "onnx.Mul"(%u, %t) : (tensor<4xi64>, tensor<i64>) -> tensor<4xi64>
    // CHECK: "onnx.Constant"() {value = dense<[2, 4, 6]> : tensor<3xi64>}
    %1 = "onnx.Mul"(%v, %t) : (tensor<3xi64>, tensor<i64>) -> tensor<3xi64>
    return %0, %1 : tensor<4xi64>, tensor<3xi64>
  }
}
