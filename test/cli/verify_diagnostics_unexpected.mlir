// RUN: not tensoropt-opt %s --split-input-file --verify-diagnostics 2>&1 | filecheck %s

func.func @f() -> i32 {
  // expected-error@+1 {{op has 0 operands}}
  return
}

// -----

// CHECK: verify_diagnostics_unexpected.mlir:12: error: unexpected error: 'func.return' op has 0 operands
func.func @g() -> i32 {
  return
}
