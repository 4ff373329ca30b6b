// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

func.func @f() {
  // expected-error@+1 {{'topt.axis_constant' op attribute "values" is expected but not provided}}
  %0 = "topt.axis_constant"() {axes = array<i64: 0>} : () -> tensor<i64>
  return
}

// -----

func.func @f() {
  // expected-error@+1 {{'topt.axis_constant' op attribute "axes" is expected but not provided}}
  %0 = "topt.axis_constant"() {values = dense<[0, 4]> : tensor<2xi64>} : () -> tensor<i64>
  return
}
