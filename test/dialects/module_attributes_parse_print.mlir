// RUN: tensoropt-opt %s | filecheck %s

// All that a module carries.
// CHECK: module attributes {topt.annotated = ["2x2"], topt.device = "h200", topt.ir_version = 10 : i64, topt.lost = ["b.weight"], topt.merged = [], topt.missing = ["w.bin"], topt.model = "m.onnx", topt.opset = {ai.onnx = 20 : i64, com.microsoft = 1 : i64}, topt.pins = {forbid = ["w=R"], pin = ["x=S(0)@x"]}, topt.pins_cost = {memory = 0.000000e+00 : f64, time = 5.000000e-01 : f64}, topt.tied = {head.weight = ["wte.weight"]}, topt.untied}
module attributes {topt.annotated = ["2x2"], topt.device = "h200", topt.ir_version = 10 : i64, topt.lost = ["b.weight"], topt.merged = [], topt.missing = ["w.bin"], topt.model = "m.onnx", topt.opset = {ai.onnx = 20 : i64, com.microsoft = 1 : i64}, topt.pins = {forbid = ["w=R"], pin = ["x=S(0)@x"]}, topt.pins_cost = {memory = 0.000000e+00 : f64, time = 5.000000e-01 : f64}, topt.tied = {head.weight = ["wte.weight"]}, topt.untied} {
}
