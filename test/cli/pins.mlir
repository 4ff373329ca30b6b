// RUN: tensoropt-opt %s --emit search --mesh 2 --pin 'w=S(0)@x' --forbid 'node:relu=batch' | filecheck %s

// The columns of the second factor are split free of charge; what is pinned is its rows.
// CHECK: func.func @main({{.*}} {topt.layout = #topt.layout<@mesh, ["S(1)"]>, topt.name = "x"} {{.*}}: tensor<64x64xf32> {topt.layout = #topt.layout<@mesh, ["S(0)"]>, topt.name = "w", topt.param}
module attributes {topt.model = "m.onnx", topt.opset = {ai.onnx = 20 : i64}, topt.ir_version = 10 : i64} {
  func.func @main(%x: tensor<64x64xf32> {topt.name = "x"}, %w: tensor<64x64xf32> {topt.name = "w", topt.param}) -> (tensor<64x64xf32> {topt.name = "y"}) {
    // CHECK: "onnx.MatMul"({{.*}}) {{.*}}topt.strategy = #topt.strategy<[#topt.layout<@mesh, ["S(1)"]>, #topt.layout<@mesh, ["S(0)"]>], [#topt.layout<@mesh, ["P(sum)"]>]>
    %0 = "onnx.MatMul"(%x, %w) : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32> loc("mm")
    // CHECK: "onnx.Relu"({{.*}}) {{.*}}topt.strategy = #topt.strategy<[#topt.layout<@mesh, ["{{R|S\(1\)}}"]>]
    %1 = "onnx.Relu"(%0) : (tensor<64x64xf32>) -> tensor<64x64xf32> loc("relu")
    return %1 : tensor<64x64xf32>
  }
}
