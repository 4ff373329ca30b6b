// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{expected 2 type arguments, but had 1}}
func.func private @f(tensor<4xf32> {topt.layout = #topt.layout<@mesh>})

// -----

// expected-error@+1 {{expected base attribute 'builtin.array' but got 'builtin.integer'}}
func.func private @f(tensor<4xf32> {topt.layout = #topt.layout<@mesh, 3>})

// -----

// expected-error@+1 {{expected base attribute 'builtin.symbol_ref' but got 'builtin.string'}}
func.func private @f(tensor<4xf32> {topt.layout = #topt.layout<"mesh", ["R"]>})

// -----

// expected-error@+1 {{expected 2 type arguments, but had 3}}
func.func private @f(tensor<4xf32> {topt.layout = #topt.layout<@mesh, ["R"], 3>})
