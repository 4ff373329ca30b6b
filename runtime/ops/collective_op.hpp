// The collectives as custom ops.
#pragma once

#include "collective.hpp"
#include "ort/custom_op.hpp"

namespace tensoropt {

CustomOp collective_op(Kind kind, Place place);

// Sets the functions of `op` that run and destroy a `Kernel`, which `op` has created.
void run_kernel(CustomOp& op);

// Several collectives of one kind fused: AllReduce, AllGather or ReduceScatter.
CustomOp combined_op(Kind kind, Place place);

}  // namespace tensoropt
