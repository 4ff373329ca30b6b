// RUN: tensoropt-opt %s | filecheck %s

// Every placement, on either axis.
shard.grid @mesh(shape = 2x2)

// CHECK: func.func private @f0(tensor<4x8xf32> {topt.layout = #topt.layout<@mesh, ["R", "R"]>})
func.func private @f0(tensor<4x8xf32> {topt.layout = #topt.layout<@mesh, ["R", "R"]>})
// CHECK: func.func private @f1(tensor<4x8xf32> {topt.layout = #topt.layout<@mesh, ["S(0)", "R"]>})
func.func private @f1(tensor<4x8xf32> {topt.layout = #topt.layout<@mesh, ["S(0)", "R"]>})
// CHECK: func.func private @f2(tensor<4x8xf32> {topt.layout = #topt.layout<@mesh, ["S(1)", "S(0)"]>})
func.func private @f2(tensor<4x8xf32> {topt.layout = #topt.layout<@mesh, ["S(1)", "S(0)"]>})
// CHECK: func.func private @f3(tensor<4x8xf32> {topt.layout = #topt.layout<@mesh, ["S(0)", "S(0)"]>})
func.func private @f3(tensor<4x8xf32> {topt.layout = #topt.layout<@mesh, ["S(0)", "S(0)"]>})
// CHECK: func.func private @f4(tensor<4x8xf32> {topt.layout = #topt.layout<@mesh, ["P(sum)", "R"]>})
func.func private @f4(tensor<4x8xf32> {topt.layout = #topt.layout<@mesh, ["P(sum)", "R"]>})
// CHECK: func.func private @f5(tensor<4x8xf32> {topt.layout = #topt.layout<@mesh, ["P(max)", "P(max)"]>})
func.func private @f5(tensor<4x8xf32> {topt.layout = #topt.layout<@mesh, ["P(max)", "P(max)"]>})
// CHECK: func.func private @f6(tensor<4x8xf32> {topt.layout = #topt.layout<@mesh, ["S(1)", "P(min)"]>})
func.func private @f6(tensor<4x8xf32> {topt.layout = #topt.layout<@mesh, ["S(1)", "P(min)"]>})
// CHECK: func.func private @f7(tensor<4x12xf32> {topt.layout = #topt.layout<@mesh, ["S(1 of 2+1)", "S(0)"]>})
func.func private @f7(tensor<4x12xf32> {topt.layout = #topt.layout<@mesh, ["S(1 of 2+1)", "S(0)"]>})
// CHECK: func.func private @f8(tensor<4x12xf32> {topt.layout = #topt.layout<@mesh, ["S(1, 1 of 3)", "S(1, 0 of 3)"]>})
func.func private @f8(tensor<4x12xf32> {topt.layout = #topt.layout<@mesh, ["S(1, 1 of 3)", "S(1, 0 of 3)"]>})
