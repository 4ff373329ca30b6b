// Barrier(x, after): x, once `after` is there. What is computed anew from y is neither run before
// `after` nor merged with what was computed from x.
#pragma once

#include "ort/custom_op.hpp"

namespace tensoropt {

// Both inputs may have any element type and shape; y shares the memory of x where it can.
CustomOp barrier_op(Place place);

}  // namespace tensoropt
