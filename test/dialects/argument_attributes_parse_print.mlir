// RUN: tensoropt-opt %s | filecheck %s

// All that an argument carries but its layout.
// CHECK: func.func private @main(tensor<4x8xf32> {topt.dims = ["n", ""], topt.name = "x"}
// CHECK-SAME: tensor<4x8xf32> {topt.name = "w", topt.param}
// CHECK-SAME: tensor<4x8xf32> {topt.fixed, topt.name = "mask", topt.param}
// CHECK-SAME: tensor<4x8xf32> {topt.classes = 10 : i64, topt.name = "labels"}
// CHECK-SAME: tensor<4x8xf32> {topt.hyper = "learning_rate", topt.name = "rate"}
// CHECK-SAME: tensor<4x8xf32> {topt.id = 3 : i64, topt.name = "p", topt.state = "parameter"}
// CHECK-SAME: tensor<4x8xf32> {topt.follows = 3 : i64, topt.name = "p.momentum", topt.of = "p", topt.state = "momentum"}
func.func private @main(tensor<4x8xf32> {topt.dims = ["n", ""], topt.name = "x"},
    tensor<4x8xf32> {topt.name = "w", topt.param},
    tensor<4x8xf32> {topt.fixed, topt.name = "mask", topt.param},
    tensor<4x8xf32> {topt.classes = 10 : i64, topt.name = "labels"},
    tensor<4x8xf32> {topt.hyper = "learning_rate", topt.name = "rate"},
    tensor<4x8xf32> {topt.id = 3 : i64, topt.name = "p", topt.state = "parameter"},
    tensor<4x8xf32> {topt.follows = 3 : i64, topt.name = "p.momentum", topt.of = "p", topt.state = "momentum"})
