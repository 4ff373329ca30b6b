// RUN: tensoropt-opt %s --split-input-file --verify-diagnostics

func.func @unknown_factor(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'onnx.Relu' op topt.rule names an unknown factor, expected one of i, j, got: 'k'}}
  %0 = "onnx.Relu"(%x) {topt.rule = #topt.rule<"(i, k) -> (i, j)", ["i=4", "j=8"], {}>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @near_factor(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'onnx.Relu' op topt.rule names an unknown factor, expected one of row, j, got: 'rows', did you mean 'row'?}}
  %0 = "onnx.Relu"(%x) {topt.rule = #topt.rule<"(rows, j) -> (row, j)", ["row=4", "j=8"], {}>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @factor(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'onnx.Relu' op topt.rule has a wrong factor, expected <name>=<size> [of <blocks>] [in <units>] [whole] [sum|max|min] [least=<n>] [padded] [crossing], got: 'j=8 split'}}
  %0 = "onnx.Relu"(%x) {topt.rule = #topt.rule<"(i, j) -> (i, j)", ["i=4", "j=8 split"], {}>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @factor_twice(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'onnx.Relu' op topt.rule has a factor twice, expected each once, got: 'i'}}
  %0 = "onnx.Relu"(%x) {topt.rule = #topt.rule<"(i, j) -> (i, j)", ["i=4", "i=8"], {}>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @twice_in_a_tensor(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'onnx.Relu' op topt.rule has a factor twice in one tensor, expected once, got: '(i, i)'}}
  %0 = "onnx.Relu"(%x) {topt.rule = #topt.rule<"(i, i) -> (i, j)", ["i=4", "j=8"], {}>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @map(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'onnx.Relu' op topt.rule has a wrong map, expected (i, k), (k, j) -> (i, j), got: '(i, j) (i, j)'}}
  %0 = "onnx.Relu"(%x) {topt.rule = #topt.rule<"(i, j) (i, j)", ["i=4", "j=8"], {}>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @operands(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'onnx.Relu' op topt.rule has a wrong number of operands, expected 1, got: 2}}
  %0 = "onnx.Relu"(%x) {topt.rule = #topt.rule<"(i, j), (i) -> (i, j)", ["i=4", "j=8"], {}>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @results(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'onnx.Relu' op topt.rule has a wrong number of results, expected 1, got: 2}}
  %0 = "onnx.Relu"(%x) {topt.rule = #topt.rule<"(i, j) -> (i, j), (i)", ["i=4", "j=8"], {}>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @rank(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'onnx.Relu' op topt.rule does not fit operand 0 of tensor<4x8xf32>, expected 2 dimensions, got: 1}}
  %0 = "onnx.Relu"(%x) {topt.rule = #topt.rule<"(i) -> (i, j)", ["i=4", "j=8 whole"], {}>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @size(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'onnx.Relu' op topt.rule does not fit operand 0 of tensor<4x8xf32>, expected a size of j that divides dimension 1, got: 6}}
  %0 = "onnx.Relu"(%x) {topt.rule = #topt.rule<"(i, j) -> (i, j)", ["i=4", "j=6"], {}>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @part(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'onnx.Relu' op topt.rule has an unknown part, expected one of linear, joint, reduced, growing, additive, inner, flops, got: 'lineer', did you mean 'linear'?}}
  %0 = "onnx.Relu"(%x) {topt.rule = #topt.rule<"(i, j) -> (i, j)", ["i=4", "j=8"], {lineer = [array<i64: 0>]}>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @linear(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'onnx.Relu' op topt.rule has a wrong 'linear', expected a list of array<i64>, got: array<i64: 0>}}
  %0 = "onnx.Relu"(%x) {topt.rule = #topt.rule<"(i, j) -> (i, j)", ["i=4", "j=8"], {linear = array<i64: 0>}>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @operand_of_linear(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'onnx.Relu' op topt.rule names an unknown operand, expected below 1, got: 1}}
  %0 = "onnx.Relu"(%x) {topt.rule = #topt.rule<"(i, j) -> (i, j)", ["i=4", "j=8"], {linear = [array<i64: 1>]}>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @additive(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'onnx.Relu' op topt.rule has a wrong 'additive', expected array<i64>, got: 0 : i64}}
  %0 = "onnx.Relu"(%x) {topt.rule = #topt.rule<"(i, j) -> (i, j)", ["i=4", "j=8"], {additive = 0 : i64}>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @factor_of_joint(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'onnx.Relu' op topt.rule names an unknown factor, expected below 2, got: 2}}
  %0 = "onnx.Relu"(%x) {topt.rule = #topt.rule<"(i, j) -> (i, j)", ["i=4", "j=8"], {joint = [array<i64: 0, 2>]}>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @result_reduced(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'onnx.Relu' op topt.rule reduces an unknown result, expected below 1, got: 1}}
  %0 = "onnx.Relu"(%x) {topt.rule = #topt.rule<"(i, j) -> (i, j)", ["i=4", "j=8"], {reduced = array<i64: 1>}>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @factor_of_growing(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'onnx.Relu' op topt.rule names an unknown factor, expected below 2, got: 3}}
  %0 = "onnx.Relu"(%x) {topt.rule = #topt.rule<"(i, j) -> (i, j)", ["i=4", "j=8"], {growing = [array<i64: 0>, array<i64: 3>]}>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @inner(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'onnx.Relu' op topt.rule has a wrong step inside, expected <collective> over [joint|lone] <factors> of (<factors>), <n> bytes [per <n> choices] [of <n> at most] [<n> times] [if padded] [if unsplit], with one of all_reduce, all_gather, reduce_scatter, all_to_all, all_to_all_rows, collective_permute, exchange, ring, copy, memory, turn, got: 'all_sum over j of (i), 4 bytes'}}
  %0 = "onnx.Relu"(%x) {topt.rule = #topt.rule<"(i, j) -> (i, j)", ["i=4", "j=8"], {inner = ["all_sum over j of (i), 4 bytes"]}>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @flops(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'onnx.Relu' op topt.rule has wrong 'flops', expected an f64 of 0 or more, got: -1.000000e+00 : f64}}
  %0 = "onnx.Relu"(%x) {topt.rule = #topt.rule<"(i, j) -> (i, j)", ["i=4", "j=8"], {flops = -1.0 : f64}>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @texts(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'onnx.Relu' op topt.rule has wrong 'inner', expected a list of strings, got: "copy"}}
  %0 = "onnx.Relu"(%x) {topt.rule = #topt.rule<"(i, j) -> (i, j)", ["i=4", "j=8"], {inner = "copy"}>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @blocks_of_merged_factors(%x: tensor<4x24xf32>) -> tensor<4x24xf32> {
  // expected-error@+1 {{'onnx.Relu' op topt.rule has wrong blocks of two merged factors, expected one for each point of j, got: 2}}
  %0 = "onnx.Relu"(%x) {topt.rule = #topt.rule<"(i, j k of 2) -> (i, j k of 2)", ["i=4", "j=3", "k=8"], {}>} : (tensor<4x24xf32>) -> tensor<4x24xf32>
  return %0 : tensor<4x24xf32>
}

// -----

func.func @blocks_of_factor_and_dimension(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'onnx.Relu' op topt.rule has blocks 2 on no factor, or on a factor with other blocks}}
  %0 = "onnx.Relu"(%x) {topt.rule = #topt.rule<"(i, j of 2) -> (i, j)", ["i=4", "j=8 of 2"], {}>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @blocks_that_are_none(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'onnx.Relu' op topt.rule has a wrong factor, expected <name>=<size> [of <blocks>] [in <units>] [whole] [sum|max|min] [least=<n>] [padded] [crossing], got: 'j=8 of 0'}}
  %0 = "onnx.Relu"(%x) {topt.rule = #topt.rule<"(i, j) -> (i, j)", ["i=4", "j=8 of 0"], {}>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @units_that_do_not_divide(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'onnx.Relu' op topt.rule has a factor that its units do not divide, expected a multiple of 3, got: j=8}}
  %0 = "onnx.Relu"(%x) {topt.rule = #topt.rule<"(i, j) -> (i, j)", ["i=4", "j=8 in 3"], {}>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// -----

func.func @units_that_do_not_divide_a_block(%x: tensor<4x24xf32>) -> tensor<4x24xf32> {
  // expected-error@+1 {{'onnx.Relu' op topt.rule has a factor that its units do not divide, expected a multiple of 3, got: j=24}}
  %0 = "onnx.Relu"(%x) {topt.rule = #topt.rule<"(i, j) -> (i, j)", ["i=4", "j=24 of 3 in 3"], {}>} : (tensor<4x24xf32>) -> tensor<4x24xf32>
  return %0 : tensor<4x24xf32>
}

// -----

func.func @units_of_other_blocks(%x: tensor<4x24xf32>) -> tensor<4x24xf32> {
  // expected-error@+1 {{'onnx.Relu' op topt.rule has wrong units, expected units of 3 blocks, got: '1+2'}}
  %0 = "onnx.Relu"(%x) {topt.rule = #topt.rule<"(i, j) -> (i, j)", ["i=4", "j=24 of 3 in 1+2"], {}>} : (tensor<4x24xf32>) -> tensor<4x24xf32>
  return %0 : tensor<4x24xf32>
}

// -----

func.func @units_of_a_dimension(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // expected-error@+1 {{'onnx.Relu' op topt.rule has 4 units in a dimension, expected the units of its factor or, on a factor without units, some for each of its blocks}}
  %0 = "onnx.Relu"(%x) {topt.rule = #topt.rule<"(i, j in 4) -> (i, j in 4)", ["i=4", "j=8 in 4"], {}>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}
