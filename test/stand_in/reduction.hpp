// NCCL's element types and reductions, for MPI.
#pragma once

#include <mpi.h>

#include "nccl_abi.hpp"

namespace stand_in {

const char* name_of(Type type);
const char* name_of(Op op);
std::size_t bytes_of(Type type);

// An MPI type as wide as the element, to move it.
MPI_Datatype mpi_type(Type type);

// As NCCL reduces: float16 and bfloat16 in float32, rounded to nearest even; max and min of floats
// prefer the number to a NaN; integer sums and products wrap. Throws of what NCCL has and this has
// not: Avg, and the 8-bit floats.
MPI_Op mpi_op(Type type, Op op);

}  // namespace stand_in
