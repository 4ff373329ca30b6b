// RUN: tensoropt-opt %s -p add-rules,partition | filecheck %s

// Attention to split keys: the ranks share the logarithms of their sums, and each scales its own result
// to a term of the sum. The lengths are those of the rank's keys.

// CHECK: func.func @main([[Q:%\w+]]: tensor<1x2x4x3xf32>
// CHECK-SAME: [[K:%\w+]]: tensor<1x2x4x3xf32>
// CHECK-SAME: [[V:%\w+]]: tensor<1x2x4x3xf32>
// CHECK-SAME: [[N:%\w+]]: tensor<1xi64>
// CHECK-SAME: -> (tensor<1x2x2x3xf32>
// CHECK: [[FIRST:%\w+]] = "topt.axis_constant"() {axes = array<i64: 0>, values = dense<{{\[\[}}0], [4]]> : tensor<2x1xi64>}
// CHECK-NEXT: [[REST:%\w+]] = "onnx.Sub"([[N]], [[FIRST]])
// CHECK: [[LENGTHS:%\w+]] = "onnx.Max"([[REST]], {{.*}}) : (tensor<1xi64>, tensor<i64>) -> tensor<1xi64>
// CHECK: [[Y:%\w+]]:2 = "onnx.tensoropt.Attention"([[Q]], [[K]], [[V]], {{.*}}, [[LENGTHS]])
// CHECK: [[LSE:%\w+]] = "onnx.Unsqueeze"([[Y]]#1, {{.*}}) : (tensor<1x2x4xf32>, tensor<1xi64>) -> tensor<1x2x4x1xf32>
// CHECK-NEXT: [[MOST:%\w+]] = shard.all_reduce [[LSE]] on @mesh grid_axes = [0] reduction = max
// CHECK: [[SUB:%\w+]] = "onnx.Sub"([[LSE]], {{.*}})
// CHECK-NEXT: [[EXP:%\w+]] = "onnx.Exp"([[SUB]])
// CHECK-NEXT: [[SUM:%\w+]] = shard.all_reduce [[EXP]] on @mesh grid_axes = [0] : tensor<1x2x4x1xf32>
// CHECK: [[WEIGHT:%\w+]] = "onnx.Div"([[EXP]], {{.*}})
// CHECK-NEXT: [[TERM:%\w+]] = "onnx.Mul"([[Y]]#0, [[WEIGHT]])
// CHECK: [[RESULT:%\w+]] = shard.reduce_scatter [[TERM]] on @mesh grid_axes = [0] scatter_dim = 2
// CHECK-NEXT: return [[RESULT]]
#whole = #topt.layout<@mesh, ["R"]>
#tokens = #topt.layout<@mesh, ["S(2)"]>
#terms = #topt.layout<@mesh, ["P(sum)"]>
module attributes {topt.device = "cpu", topt.opset = {ai.onnx = 20 : i64}} {
  shard.grid @mesh(shape = 2)
  func.func @main(
      %q: tensor<1x2x4x3xf32> {topt.name = "q", topt.layout = #whole},
      %k: tensor<1x2x8x3xf32> {topt.name = "k", topt.layout = #tokens},
      %v: tensor<1x2x8x3xf32> {topt.name = "v", topt.layout = #tokens},
      %n: tensor<1xi64> {topt.name = "n", topt.layout = #whole})
      -> (tensor<1x2x4x3xf32> {topt.name = "y", topt.layout = #tokens}) {
    %bias = "onnx.NoValue"() : () -> none
    %0:2 = "onnx.tensoropt.Attention"(%q, %k, %v, %bias, %n) {scale = 1.0 : f32, topt.strategy = #topt.strategy<[#whole, #tokens, #tokens, #whole, #whole], [#terms, #whole]>} : (tensor<1x2x4x3xf32>, tensor<1x2x8x3xf32>, tensor<1x2x8x3xf32>, none, tensor<1xi64>) -> (tensor<1x2x4x3xf32>, tensor<1x2x4xf32>)
    %1 = "topt.reshard"(%0#0) {src = #terms, dst = #tokens} : (tensor<1x2x4x3xf32>) -> tensor<1x2x4x3xf32>
    return %1 : tensor<1x2x4x3xf32>
  }
}
