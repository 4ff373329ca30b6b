// RUN: tensoropt-opt %s -p schedule | filecheck %s

// Both halves are read at once at the end. The first one is made of a larger tensor than it is itself:
// made early, its halves would be alive while the larger ones of the other are made.

// CHECK-LABEL: func.func @main
module attributes {topt.opset = {ai.onnx = 20 : i64}} {
  func.func @main(%x: tensor<64xf32> {topt.name = "x"}) -> (tensor<64xf32> {topt.name = "y"}) {
    return %x : tensor<64xf32>
  }
}
