// The collectives as custom ops.
#pragma once

#include "collective.hpp"
#include "ort/custom_op.hpp"

namespace tensoropt {

CustomOp collective_op(Kind kind, Place place);

// Lets `op` run its kernel, a `Kernel` that it has created, and end it.
void run_kernel(CustomOp& op);

// Several of a kind as one: an AllReduce, AllGather or ReduceScatter.
CustomOp combined_op(Kind kind, Place place);

}  // namespace tensoropt
