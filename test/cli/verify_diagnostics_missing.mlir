// RUN: not tensoropt-opt %s --verify-diagnostics 2>&1 | filecheck %s

// CHECK: verify_diagnostics_missing.mlir:4: error: expected error "never comes" was not produced
// expected-error@+1 {{never comes}}
func.func @f() {
  return
}
