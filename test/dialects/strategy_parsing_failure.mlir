// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{expected 2 type arguments, but had 1}}
func.func private @f() attributes {topt.strategy = #topt.strategy<[]>}

// -----

// expected-error@+1 {{expected base attribute 'builtin.array' but got 'builtin.symbol_ref'}}
func.func private @f() attributes {topt.strategy = #topt.strategy<[], @mesh>}
