// RUN: tensoropt-opt %s -p pad-once,dce --split-input-file | filecheck %s

// Rows are shifted, every second one is taken, then columns are shifted: three slices of one copy.
// What is only a slice stays.
// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<4x6x8xf32> {topt.name = "x"}) -> (tensor<4x6x8xf32> {topt.name = "a"}, tensor<2x6x8xf32> {topt.name = "b"}, tensor<2x6x8xf32> {topt.name = "c"}, tensor<2x6x8xf32> {topt.name = "d"}) {
    // CHECK: [[ENDS:%\w+]] = "onnx.Constant"() {value = dense<[1, 1, 0, 0, 2, 0]>
    // CHECK: [[PADDED:%\w+]] = "onnx.Pad"([[X:%\w+]], [[ENDS]], {{.*}}) {{.*}} -> tensor<5x9x8xf32>
    %down = "onnx.Constant"() {value = dense<[1, 0, 0, -1, 0, 0]> : tensor<6xi64>} : () -> tensor<6xi64>
    %left = "onnx.Constant"() {value = dense<[0, -2, 0, 0, 2, 0]> : tensor<6xi64>} : () -> tensor<6xi64>
    %right = "onnx.Constant"() {value = dense<[0, 1, 0, 0, -1, 0]> : tensor<6xi64>} : () -> tensor<6xi64>
    %zero = "onnx.Constant"() {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
    %start = "onnx.Constant"() {value = dense<0> : tensor<1xi64>} : () -> tensor<1xi64>
    %stop = "onnx.Constant"() {value = dense<4> : tensor<1xi64>} : () -> tensor<1xi64>
    %axis = "onnx.Constant"() {value = dense<0> : tensor<1xi64>} : () -> tensor<1xi64>
    %step = "onnx.Constant"() {value = dense<2> : tensor<1xi64>} : () -> tensor<1xi64>
    %0 = "onnx.Pad"(%x, %down, %zero) : (tensor<4x6x8xf32>, tensor<6xi64>, tensor<f32>) -> tensor<4x6x8xf32>
    %1 = "onnx.Slice"(%0, %start, %stop, %axis, %step) : (tensor<4x6x8xf32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<2x6x8xf32>
    %2 = "onnx.Pad"(%1, %left, %zero) {topt.phase = "backward"} : (tensor<2x6x8xf32>, tensor<6xi64>, tensor<f32>) -> tensor<2x6x8xf32>
    %3 = "onnx.Pad"(%1, %right, %zero) : (tensor<2x6x8xf32>, tensor<6xi64>, tensor<f32>) -> tensor<2x6x8xf32>
    %4 = "onnx.Slice"(%x, %start, %stop, %axis, %step) : (tensor<4x6x8xf32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<2x6x8xf32>
    // CHECK-DAG: [[A:%\w+]] = "onnx.Slice"([[PADDED]], {{.*}} -> tensor<4x6x8xf32>
    // CHECK-DAG: [[B:%\w+]] = "onnx.Slice"([[PADDED]], {{.*}} {topt.phase = "backward"} {{.*}} -> tensor<2x6x8xf32>
    // CHECK-DAG: [[C:%\w+]] = "onnx.Slice"([[PADDED]], {{.*}} -> tensor<2x6x8xf32>
    // CHECK-DAG: [[D:%\w+]] = "onnx.Slice"([[X]], {{.*}} -> tensor<2x6x8xf32>
    // CHECK-NOT: onnx.Pad
    // CHECK: return [[A]], [[B]], [[C]], [[D]]
    return %0, %2, %3, %4 : tensor<4x6x8xf32>, tensor<2x6x8xf32>, tensor<2x6x8xf32>, tensor<2x6x8xf32>
  }
}

// -----

// Two shifts stay, and so do those of what is wide.
// CHECK-LABEL: func.func @main
// CHECK-COUNT-5: "onnx.Pad"
// CHECK-NOT: "onnx.Slice"({{.*}} -> tensor<4x64xf32>
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<4x8xf32> {topt.name = "x"}, %y: tensor<4x64xf32> {topt.name = "y"}) -> (tensor<4x8xf32> {topt.name = "a"}, tensor<4x8xf32> {topt.name = "b"}, tensor<4x64xf32> {topt.name = "c"}, tensor<4x64xf32> {topt.name = "d"}, tensor<4x64xf32> {topt.name = "e"}) {
    %down = "onnx.Constant"() {value = dense<[1, 0, -1, 0]> : tensor<4xi64>} : () -> tensor<4xi64>
    %up = "onnx.Constant"() {value = dense<[-1, 0, 1, 0]> : tensor<4xi64>} : () -> tensor<4xi64>
    %far = "onnx.Constant"() {value = dense<[-2, 0, 2, 0]> : tensor<4xi64>} : () -> tensor<4xi64>
    %0 = "onnx.Pad"(%x, %down) : (tensor<4x8xf32>, tensor<4xi64>) -> tensor<4x8xf32>
    %1 = "onnx.Pad"(%x, %up) : (tensor<4x8xf32>, tensor<4xi64>) -> tensor<4x8xf32>
    %2 = "onnx.Pad"(%y, %down) : (tensor<4x64xf32>, tensor<4xi64>) -> tensor<4x64xf32>
    %3 = "onnx.Pad"(%y, %up) : (tensor<4x64xf32>, tensor<4xi64>) -> tensor<4x64xf32>
    %4 = "onnx.Pad"(%y, %far) : (tensor<4x64xf32>, tensor<4xi64>) -> tensor<4x64xf32>
    return %0, %1, %2, %3, %4 : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x64xf32>, tensor<4x64xf32>, tensor<4x64xf32>
  }
}

// -----

// What only adds zeros, as the padding of parts does, is no shift: each reader has its own.
// CHECK-LABEL: func.func @main
// CHECK-COUNT-3: "onnx.Pad"
// CHECK-NOT: onnx.Slice
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<4x5xf32> {topt.name = "x"}) -> (tensor<4x6xf32> {topt.name = "a"}, tensor<4x6xf32> {topt.name = "b"}, tensor<4x6xf32> {topt.name = "c"}) {
    %one = "onnx.Constant"() {value = dense<[0, 0, 0, 1]> : tensor<4xi64>} : () -> tensor<4xi64>
    %0 = "onnx.Pad"(%x, %one) : (tensor<4x5xf32>, tensor<4xi64>) -> tensor<4x6xf32>
    %1 = "onnx.Pad"(%x, %one) : (tensor<4x5xf32>, tensor<4xi64>) -> tensor<4x6xf32>
    %2 = "onnx.Pad"(%x, %one) : (tensor<4x5xf32>, tensor<4xi64>) -> tensor<4x6xf32>
    return %0, %1, %2 : tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>
  }
}
