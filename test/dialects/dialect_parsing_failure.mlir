// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{expected dynamic attribute}}
func.func private @f() attributes {topt.layout = #topt.lay<@mesh>}

// -----

// expected-error@+1 {{expected dynamic type}}
func.func private @f(!topt.tensor)

// -----

func.func @f() {
  // expected-error@+1 {{unregistered operation 'topt.move' found in dialect ('topt') that does not allow unknown operations}}
  "topt.move"() : () -> ()
  return
}
