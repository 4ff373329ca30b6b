// RUN: tensoropt-opt %s --split-input-file -p cse | filecheck %s

// CHECK: func.func @first
func.func @first() {
  return
}

// CHECK: // -----

// -----

// CHECK: func.func @second
func.func @second() {
  return
}
