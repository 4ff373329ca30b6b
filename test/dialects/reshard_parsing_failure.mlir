// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

func.func @f(%x: tensor<4xf32>) {
  // expected-error@+1 {{'topt.reshard' op attribute "dst" is expected but not provided}}
  %0 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["R"]>} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @f(%x: tensor<4xf32>) {
  // expected-error@+1 {{op expects exactly 1 operands, but got 2}}
  %0 = "topt.reshard"(%x, %x) {src = #topt.layout<@mesh, ["R"]>, dst = #topt.layout<@mesh, ["R"]>} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @f(%x: tensor<4xf32>) {
  // expected-error@+1 {{op expects exactly 1 results, but got 0}}
  "topt.reshard"(%x) {src = #topt.layout<@mesh, ["R"]>, dst = #topt.layout<@mesh, ["R"]>} : (tensor<4xf32>) -> ()
  return
}

// -----

func.func @f(%x: tensor<4xf32>) {
  // expected-error@+1 {{expected base attribute 'topt.layout' but got 'builtin.integer'}}
  %0 = "topt.reshard"(%x) {src = #topt.layout<@mesh, ["R"]>, dst = 3 : i64} : (tensor<4xf32>) -> tensor<4xf32>
  return
}
