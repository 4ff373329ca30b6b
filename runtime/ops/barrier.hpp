// Barrier(x, after) returns x once `after` is computed. Recomputation from y therefore neither runs
// before `after`, nor is it merged with the original computation from x.
#pragma once

#include "ort/custom_op.hpp"

namespace tensoropt {

// Both inputs may have any element type and shape; y shares the memory of x if possible.
CustomOp barrier_op(Place place);

}  // namespace tensoropt
