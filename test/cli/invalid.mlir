// RUN: not tensoropt-opt %s 2>&1 | filecheck %s

// CHECK: invalid.mlir:5:3: error: 'func.return' op has 0 operands, but enclosing function (@f) returns 1
func.func @f() -> i32 {
  return
}
