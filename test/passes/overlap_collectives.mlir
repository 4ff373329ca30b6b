// RUN: tensoropt-opt %s -p overlap-collectives --split-input-file | filecheck %s

// The gather of a split parameter begins before the product that comes first, and holds its part
// until it ends.
// CHECK-LABEL: func.func @main({{.*}}"ahead"
// CHECK: [[WHOLE:%\w+]] = shard.all_gather [[PART:%\w+]] {{.*}} {topt.start}
// CHECK-NEXT: [[FIRST:%\w+]] = "onnx.MatMul"(%arg0,
// CHECK-NEXT: [[THERE:%\w+]] = "topt.wait"([[WHOLE]], [[PART]])
// CHECK-NEXT: "onnx.MatMul"([[FIRST]], [[THERE]])
module attributes {topt.device = "test/devices/beside.toml", topt.opset = {ai.onnx = 20 : i64}, topt.passed = "partition"} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<256x256xf32> {topt.name = "ahead"}, %w1: tensor<256x256xf32> {topt.name = "w1", topt.param}, %w2: tensor<128x256xf32> {topt.name = "w2", topt.state = "parameter"})
      -> (tensor<256x256xf32> {topt.name = "y"}) {
    %0 = "onnx.MatMul"(%x, %w1) : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
    %1 = shard.all_gather %w2 on @mesh grid_axes = [0] gather_axis = 0 : tensor<128x256xf32> -> tensor<256x256xf32>
    %2 = "onnx.MatMul"(%0, %1) : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
    return %2 : tensor<256x256xf32>
  }
}

// -----

// A cast of the part, which only the gather reads, comes along to its start.
// CHECK-LABEL: func.func @main({{.*}}"cast"
// CHECK: [[PART:%\w+]] = "onnx.Cast"(%arg2)
// CHECK-NEXT: [[WHOLE:%\w+]] = shard.all_gather [[PART]] {{.*}} {topt.start}
// CHECK-NEXT: [[FIRST:%\w+]] = "onnx.MatMul"(%arg0,
// CHECK-NEXT: [[THERE:%\w+]] = "topt.wait"([[WHOLE]], [[PART]])
// CHECK-NEXT: "onnx.MatMul"([[FIRST]], [[THERE]])
module attributes {topt.device = "test/devices/beside.toml", topt.opset = {ai.onnx = 20 : i64}, topt.overlap = "ample", topt.passed = "partition"} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<256x256xf32> {topt.name = "cast"}, %w1: tensor<256x256xf32> {topt.name = "w1", topt.param}, %w2: tensor<128x256xf16> {topt.name = "w2", topt.state = "parameter"})
      -> (tensor<256x256xf32> {topt.name = "y"}) {
    %0 = "onnx.MatMul"(%x, %w1) : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
    %1 = "onnx.Cast"(%w2) {to = 1 : si64} : (tensor<128x256xf16>) -> tensor<128x256xf32>
    %2 = shard.all_gather %1 on @mesh grid_axes = [0] gather_axis = 0 : tensor<128x256xf32> -> tensor<256x256xf32>
    %3 = "onnx.MatMul"(%0, %2) : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
    return %3 : tensor<256x256xf32>
  }
}

// -----

// The reduction of a gradient goes on during the rest of the backward pass; what leads to the
// update comes behind its wait.
// CHECK-LABEL: func.func @main({{.*}}"backward"
// CHECK: [[SUM:%\w+]] = shard.all_reduce %{{.*}} {topt.phase = "backward", topt.start}
// CHECK-NEXT: [[X:%\w+]] = "onnx.MatMul"
// CHECK-NEXT: [[Y:%\w+]] = "onnx.Add"([[X]]
// CHECK-NEXT: [[THERE:%\w+]] = "topt.wait"([[SUM]]) {{.*}}topt.phase = "backward"}
// CHECK-NEXT: "onnx.Identity"([[THERE]]) {topt.gradient_of = "w"
// CHECK-NEXT: "onnx.Sub"
module attributes {topt.device = "test/devices/beside.toml", topt.opset = {ai.onnx = 20 : i64}, topt.passed = "partition"} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<512x256xf32> {topt.name = "backward"}, %wide: tensor<512x512xf32> {topt.name = "wide"}, %w: tensor<256x256xf32> {topt.name = "w", topt.state = "parameter"})
      -> (tensor<512x256xf32> {topt.name = "loss"}, tensor<256x256xf32> {topt.name = "w.new", topt.updates = "w"}) {
    %read = "onnx.ReduceMax"(%wide) {keepdims = 1 : i64, topt.phase = "backward"} : (tensor<512x512xf32>) -> tensor<1x1xf32>
    %0 = "onnx.Neg"(%w) {topt.phase = "backward"} : (tensor<256x256xf32>) -> tensor<256x256xf32>
    %1 = shard.all_reduce %0 on @mesh grid_axes = [0] {topt.phase = "backward"} : tensor<256x256xf32> -> tensor<256x256xf32>
    %2 = "onnx.Identity"(%1) {topt.gradient_of = "w", topt.phase = "backward"} : (tensor<256x256xf32>) -> tensor<256x256xf32>
    %3 = "onnx.MatMul"(%x, %w) {topt.phase = "backward"} : (tensor<512x256xf32>, tensor<256x256xf32>) -> tensor<512x256xf32>
    %4 = "onnx.Add"(%3, %read) {topt.phase = "backward"} : (tensor<512x256xf32>, tensor<1x1xf32>) -> tensor<512x256xf32>
    %5 = "onnx.Sub"(%w, %2) {topt.phase = "update"} : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
    return %4, %5 : tensor<512x256xf32>, tensor<256x256xf32>
  }
}

// -----

// The same where the program takes no more memory earlier: what is under way does not fit.
// CHECK-LABEL: func.func @main({{.*}}"tight"
// CHECK-NOT: topt.start
module attributes {topt.device = "test/devices/beside.toml", topt.opset = {ai.onnx = 20 : i64}, topt.passed = "partition"} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<512x256xf32> {topt.name = "tight"}, %w: tensor<256x256xf32> {topt.name = "w", topt.state = "parameter"})
      -> (tensor<512x256xf32> {topt.name = "loss"}, tensor<256x256xf32> {topt.name = "w.new", topt.updates = "w"}) {
    %0 = "onnx.Neg"(%w) {topt.phase = "backward"} : (tensor<256x256xf32>) -> tensor<256x256xf32>
    %1 = shard.all_reduce %0 on @mesh grid_axes = [0] {topt.phase = "backward"} : tensor<256x256xf32> -> tensor<256x256xf32>
    %2 = "onnx.Identity"(%1) {topt.gradient_of = "w", topt.phase = "backward"} : (tensor<256x256xf32>) -> tensor<256x256xf32>
    %3 = "onnx.MatMul"(%x, %w) {topt.phase = "backward"} : (tensor<512x256xf32>, tensor<256x256xf32>) -> tensor<512x256xf32>
    %4 = "onnx.Sub"(%w, %2) {topt.phase = "update"} : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
    return %3, %4 : tensor<512x256xf32>, tensor<256x256xf32>
  }
}

// -----

// Those that are sent as one begin as one, and their waits stand in a row.
// CHECK-LABEL: func.func @main({{.*}}"two"
// CHECK: [[A:%\w+]] = shard.all_gather {{.*}} {topt.start, topt.together = 2 : i64}
// CHECK-NEXT: [[B:%\w+]] = shard.all_gather {{.*}} : tensor<128x128xf32>
// CHECK-NEXT: "onnx.MatMul"
// CHECK-NEXT: [[A2:%\w+]] = "topt.wait"([[A]], %arg3)
// CHECK-NEXT: [[B2:%\w+]] = "topt.wait"([[B]], %arg4)
// CHECK-NEXT: "onnx.MatMul"({{.*}}, [[A2]])
// CHECK-NEXT: "onnx.MatMul"({{.*}}, [[B2]])
module attributes {topt.device = "test/devices/beside.toml", topt.opset = {ai.onnx = 20 : i64}, topt.passed = "partition"} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<256x256xf32> {topt.name = "two"}, %wide: tensor<512x512xf32> {topt.name = "wide"}, %w1: tensor<256x256xf32> {topt.name = "w1", topt.param}, %w2: tensor<128x128xf32> {topt.name = "w2", topt.state = "parameter"}, %w3: tensor<128x128xf32> {topt.name = "w3", topt.state = "parameter"})
      -> (tensor<256x128xf32> {topt.name = "y"}) {
    %read = "onnx.ReduceMax"(%wide) {keepdims = 1 : i64} : (tensor<512x512xf32>) -> tensor<1x1xf32>
    %0 = "onnx.MatMul"(%x, %w1) : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
    %1 = shard.all_gather %w2 on @mesh grid_axes = [0] gather_axis = 0 {topt.together = 2 : i64} : tensor<128x128xf32> -> tensor<256x128xf32>
    %2 = shard.all_gather %w3 on @mesh grid_axes = [0] gather_axis = 1 : tensor<128x128xf32> -> tensor<128x256xf32>
    %3 = "onnx.MatMul"(%0, %1) : (tensor<256x256xf32>, tensor<256x128xf32>) -> tensor<256x128xf32>
    %4 = "onnx.MatMul"(%3, %2) : (tensor<256x128xf32>, tensor<128x256xf32>) -> tensor<256x256xf32>
    %5 = "onnx.MatMul"(%4, %1) : (tensor<256x256xf32>, tensor<256x128xf32>) -> tensor<256x128xf32>
    %6 = "onnx.Add"(%5, %read) : (tensor<256x128xf32>, tensor<1x1xf32>) -> tensor<256x128xf32>
    return %6 : tensor<256x128xf32>
  }
}

// -----

// `--overlap off` leaves them where they are.
// CHECK-LABEL: func.func @main({{.*}}"off"
// CHECK-NOT: topt.start
module attributes {topt.device = "test/devices/beside.toml", topt.opset = {ai.onnx = 20 : i64}, topt.overlap = "off", topt.passed = "partition"} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<256x256xf32> {topt.name = "off"}, %w1: tensor<256x256xf32> {topt.name = "w1", topt.param}, %w2: tensor<128x256xf32> {topt.name = "w2", topt.state = "parameter"})
      -> (tensor<256x256xf32> {topt.name = "y"}) {
    %0 = "onnx.MatMul"(%x, %w1) : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
    %1 = shard.all_gather %w2 on @mesh grid_axes = [0] gather_axis = 0 : tensor<128x256xf32> -> tensor<256x256xf32>
    %2 = "onnx.MatMul"(%0, %1) : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
    return %2 : tensor<256x256xf32>
  }
}

// -----

// A sum that the next operation reads does not wait for a gradient that nothing reads yet: the
// gradient begins behind it.
// CHECK-LABEL: func.func @main({{.*}}"behind"
// CHECK: [[LARGE:%\w+]] = "onnx.Neg"(%{{.*}}) {{.*}} tensor<256x256xf32>
// CHECK-NEXT: [[SMALL:%\w+]] = "onnx.Neg"
// CHECK-NEXT: [[SUM:%\w+]] = shard.all_reduce [[SMALL]] on @mesh grid_axes = [0] {topt.phase = "backward"} : tensor<256xf32>
// CHECK-NEXT: [[GRADIENT:%\w+]] = shard.all_reduce [[LARGE]] {{.*}}topt.start}
// CHECK-NEXT: [[X:%\w+]] = "onnx.Add"(%{{.*}}, [[SUM]])
// CHECK-NEXT: "onnx.MatMul"([[X]]
// CHECK: "topt.wait"([[GRADIENT]])
module attributes {topt.device = "test/devices/beside.toml", topt.opset = {ai.onnx = 20 : i64}, topt.passed = "partition"} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<512x256xf32> {topt.name = "behind"}, %wide: tensor<512x512xf32> {topt.name = "wide"}, %w: tensor<256x256xf32> {topt.name = "w", topt.state = "parameter"}, %b: tensor<256xf32> {topt.name = "b", topt.state = "parameter"})
      -> (tensor<512x256xf32> {topt.name = "loss"}, tensor<256x256xf32> {topt.name = "w.new", topt.updates = "w"}) {
    %read = "onnx.ReduceMax"(%wide) {keepdims = 1 : i64, topt.phase = "backward"} : (tensor<512x512xf32>) -> tensor<1x1xf32>
    %0 = "onnx.Neg"(%w) {topt.phase = "backward"} : (tensor<256x256xf32>) -> tensor<256x256xf32>
    %1 = shard.all_reduce %0 on @mesh grid_axes = [0] {topt.phase = "backward"} : tensor<256x256xf32> -> tensor<256x256xf32>
    %2 = "onnx.Neg"(%b) {topt.phase = "backward"} : (tensor<256xf32>) -> tensor<256xf32>
    %3 = shard.all_reduce %2 on @mesh grid_axes = [0] {topt.phase = "backward"} : tensor<256xf32> -> tensor<256xf32>
    %4 = "onnx.Add"(%x, %3) {topt.phase = "backward"} : (tensor<512x256xf32>, tensor<256xf32>) -> tensor<512x256xf32>
    %5 = "onnx.MatMul"(%4, %w) {topt.phase = "backward"} : (tensor<512x256xf32>, tensor<256x256xf32>) -> tensor<512x256xf32>
    %6 = "onnx.Add"(%5, %read) {topt.phase = "backward"} : (tensor<512x256xf32>, tensor<1x1xf32>) -> tensor<512x256xf32>
    %7 = "onnx.Identity"(%1) {topt.gradient_of = "w", topt.phase = "backward"} : (tensor<256x256xf32>) -> tensor<256x256xf32>
    %8 = "onnx.Sub"(%w, %7) {topt.phase = "update"} : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
    return %6, %8 : tensor<512x256xf32>, tensor<256x256xf32>
  }
}

// -----

// The gather of a new weight goes on while the next one is computed, in memory of its own, and is
// waited for once it has ended.
// CHECK-LABEL: func.func @main({{.*}}"update"
// CHECK: [[PART:%\w+]] = "onnx.Mul"(%arg1
// CHECK-NEXT: [[NEW:%\w+]] = shard.all_gather [[PART]] {{.*}}topt.start}
// CHECK-NEXT: "onnx.MatMul"
// CHECK-NEXT: [[THERE:%\w+]] = "topt.wait"([[NEW]], [[PART]])
// CHECK: return {{.*}}[[THERE]]
module attributes {topt.device = "test/devices/beside.toml", topt.opset = {ai.onnx = 20 : i64}, topt.passed = "partition"} {
  shard.grid @mesh(shape = 2)
  func.func @main(%x: tensor<1024x1024xf32> {topt.name = "update"}, %part: tensor<128x256xf32> {topt.name = "part", topt.state = "velocity"}, %w: tensor<256x256xf32> {topt.name = "w", topt.state = "parameter"}, %v: tensor<256x256xf32> {topt.name = "v", topt.state = "parameter"})
      -> (tensor<1x1xf32> {topt.name = "loss"}, tensor<256x256xf32> {topt.name = "w.new", topt.updates = "w"}, tensor<256x256xf32> {topt.name = "v.new", topt.updates = "v"}) {
    %0 = "onnx.ReduceMax"(%x) {keepdims = 1 : i64, topt.phase = "backward"} : (tensor<1024x1024xf32>) -> tensor<1x1xf32>
    %1 = "onnx.Mul"(%part, %part) {topt.phase = "update"} : (tensor<128x256xf32>, tensor<128x256xf32>) -> tensor<128x256xf32>
    %2 = "onnx.MatMul"(%v, %v) {topt.phase = "update"} : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
    %3 = "onnx.Sub"(%v, %2) {topt.phase = "update"} : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
    %4 = shard.all_gather %1 on @mesh grid_axes = [0] gather_axis = 0 {topt.phase = "update"} : tensor<128x256xf32> -> tensor<256x256xf32>
    return %0, %4, %3 : tensor<1x1xf32>, tensor<256x256xf32>, tensor<256x256xf32>
  }
}

// -----

// In a ring, the keys of the next turn travel during the attention to the keys of this one.
// CHECK-LABEL: func.func @main({{.*}}"ring"
// CHECK: [[KEYS:%\w+]] = "topt.collective_permute"(%arg1) {{.*}}topt.start
// CHECK-NEXT: "onnx.tensoropt.Attention"(%arg0, %arg1, %arg1)
// CHECK-NEXT: [[THERE:%\w+]] = "topt.wait"([[KEYS]], %arg1)
// CHECK-NEXT: "onnx.tensoropt.Attention"(%arg0, [[THERE]], [[THERE]])
module attributes {topt.device = "test/devices/beside.toml", topt.opset = {ai.onnx = 20 : i64}, topt.passed = "partition"} {
  shard.grid @mesh(shape = 2)
  func.func @main(%q: tensor<1x2x64x64xf32> {topt.name = "ring"}, %k: tensor<1x2x64x64xf32> {topt.name = "k"}) -> (tensor<1x2x64x64xf32> {topt.name = "y"}) {
    %0 = "topt.collective_permute"(%k) {grid_axes = array<i16: 0>, sources = array<i64: 1, 0>, topt.takes = {compute_s = 1.0e-3, node = 0 : i64, sent_s = 1.0e-3}} : (tensor<1x2x64x64xf32>) -> tensor<1x2x64x64xf32>
    %1:2 = "onnx.tensoropt.Attention"(%q, %k, %k) {scale = 1.0 : f32, topt.takes = {compute_s = 1.0e-3, node = 0 : i64, sent_s = 1.0e-3}} : (tensor<1x2x64x64xf32>, tensor<1x2x64x64xf32>, tensor<1x2x64x64xf32>) -> (tensor<1x2x64x64xf32>, tensor<1x2x64xf32>)
    %2:2 = "onnx.tensoropt.Attention"(%q, %0, %0) {scale = 1.0 : f32, topt.takes = {compute_s = 1.0e-3, node = 0 : i64, sent_s = 1.0e-3}} : (tensor<1x2x64x64xf32>, tensor<1x2x64x64xf32>, tensor<1x2x64x64xf32>) -> (tensor<1x2x64x64xf32>, tensor<1x2x64xf32>)
    %3 = "onnx.Add"(%1#0, %2#0) {topt.takes = {compute_s = 1.0e-3, node = 0 : i64, sent_s = 1.0e-3}} : (tensor<1x2x64x64xf32>, tensor<1x2x64x64xf32>) -> tensor<1x2x64x64xf32>
    return %3 : tensor<1x2x64x64xf32>
  }
}

// -----

// Turns that take no time hide nothing.
// CHECK-LABEL: func.func @main({{.*}}"short turns"
// CHECK-NOT: topt.start
// CHECK-NOT: topt.wait
// CHECK: return
module attributes {topt.device = "test/devices/beside.toml", topt.opset = {ai.onnx = 20 : i64}, topt.passed = "partition"} {
  shard.grid @mesh(shape = 2)
  func.func @main(%q: tensor<1x2x64x64xf32> {topt.name = "short turns"}, %k: tensor<1x2x64x64xf32> {topt.name = "k"}) -> (tensor<1x2x64x64xf32> {topt.name = "y"}) {
    %0 = "topt.collective_permute"(%k) {grid_axes = array<i16: 0>, sources = array<i64: 1, 0>, topt.takes = {compute_s = 0.0, node = 0 : i64, sent_s = 1.0e-3}} : (tensor<1x2x64x64xf32>) -> tensor<1x2x64x64xf32>
    %1:2 = "onnx.tensoropt.Attention"(%q, %k, %k) {scale = 1.0 : f32, topt.takes = {compute_s = 0.0, node = 0 : i64, sent_s = 1.0e-3}} : (tensor<1x2x64x64xf32>, tensor<1x2x64x64xf32>, tensor<1x2x64x64xf32>) -> (tensor<1x2x64x64xf32>, tensor<1x2x64xf32>)
    %2:2 = "onnx.tensoropt.Attention"(%q, %0, %0) {scale = 1.0 : f32, topt.takes = {compute_s = 0.0, node = 0 : i64, sent_s = 1.0e-3}} : (tensor<1x2x64x64xf32>, tensor<1x2x64x64xf32>, tensor<1x2x64x64xf32>) -> (tensor<1x2x64x64xf32>, tensor<1x2x64xf32>)
    %3 = "onnx.Add"(%1#0, %2#0) {topt.takes = {compute_s = 0.0, node = 0 : i64, sent_s = 1.0e-3}} : (tensor<1x2x64x64xf32>, tensor<1x2x64x64xf32>) -> tensor<1x2x64x64xf32>
    return %3 : tensor<1x2x64x64xf32>
  }
}
