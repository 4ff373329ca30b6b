// RUN: not tensoropt-opt %s --verify-diagnostics 2>&1 | filecheck %s

// CHECK: --verify-diagnostics expected at least one 'expected-...' comment
func.func @f() {
  return
}
