// RUN: tensoropt-opt %s -p add-rules,search-strategies{mesh=2\ device=test/devices/small.toml} | filecheck %s

// A device has 400 kB: the two faster points are marked, and the fastest of the others is chosen.
// CHECK: "topt.point"() {above_capacity, communication_s = 0.0{{.*}} static_bytes = 524288 : i64, transient_bytes = 65536 : i64}
// CHECK-NEXT: "topt.point"() {above_capacity, communication_s = {{.*}} static_bytes = 393216 : i64, transient_bytes = 98304 : i64}
// CHECK-NEXT: "topt.point"() {chosen, communication_s = {{.*}} static_bytes = 262144 : i64, transient_bytes = 98304 : i64}
// CHECK-NOT: topt.point
module attributes {topt.model = "m.onnx", topt.opset = {ai.onnx = 20 : i64}, topt.ir_version = 10 : i64} {
  func.func @main(%x: tensor<64x256xf32> {topt.name = "x"}, %w: tensor<256x256xf32> {topt.name = "w", topt.param}, %v: tensor<256x256xf32> {topt.name = "v", topt.param}) -> (tensor<64x256xf32> {topt.name = "y"}) {
    %0 = "onnx.MatMul"(%x, %w) : (tensor<64x256xf32>, tensor<256x256xf32>) -> tensor<64x256xf32>
    %1 = "onnx.MatMul"(%0, %v) : (tensor<64x256xf32>, tensor<256x256xf32>) -> tensor<64x256xf32>
    return %1 : tensor<64x256xf32>
  }
}
