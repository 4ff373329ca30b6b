// The operator `Elementwise`: one program over one or several pieces of equal make.
#pragma once

#include "ort/custom_op.hpp"

namespace tensoropt {

// Of the CPU alone. Inputs: float32 scalars, then of each piece the arrays that the program reads,
// all of one shape; outputs: of each piece the arrays that it writes, of that shape.
CustomOp elementwise_op();

}  // namespace tensoropt
