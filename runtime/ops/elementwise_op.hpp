// The operator `Elementwise`: one program over one or several pieces with the same types.
#pragma once

#include "ort/custom_op.hpp"

namespace tensoropt {

// On GPUs, the program is a kernel that is compiled when the session is created. Inputs: float32
// scalars, then per piece the arrays that the program reads, all of one shape, or on GPUs broadcast
// to it. Outputs: per piece the arrays that it writes, of that shape.
CustomOp elementwise_op(Place place);

}  // namespace tensoropt
