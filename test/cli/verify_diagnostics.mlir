// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

func.func @returns() -> i32 {
  // expected-error@+1 {{'func.return' op has 0 operands}}
  return
}

// -----

func.func @above() -> i32 {
  return
  // expected-error@above {{'func.return' op has 0 operands}}
}

// -----

func.func private @twice()
// expected-note@-1 {{see existing symbol definition here}}
// expected-error@below {{redefinition of symbol named 'twice'}}
func.func private @twice()
