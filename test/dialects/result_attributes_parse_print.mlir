// RUN: tensoropt-opt %s | filecheck %s

// All that a result carries but its layout.
// CHECK: (tensor<4xf32> {topt.id = 1 : i64, topt.name = "w"})
// CHECK-SAME: -> (tensor<?xf32> {topt.dims = ["n"], topt.name = "y"}, tensor<4xf32> {topt.follows = 1 : i64, topt.name = "w.new", topt.updates = "w"})
func.func private @main(tensor<4xf32> {topt.id = 1 : i64, topt.name = "w"})
    -> (tensor<?xf32> {topt.dims = ["n"], topt.name = "y"}, tensor<4xf32> {topt.follows = 1 : i64, topt.name = "w.new", topt.updates = "w"})
