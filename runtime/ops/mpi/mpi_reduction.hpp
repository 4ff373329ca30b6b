// Reductions of every element type as MPI operations.
#pragma once

#include <mpi.h>

#include "collective.hpp"

namespace tensoropt {

struct MpiReduction {
  MPI_Datatype type;
  MPI_Op op;
};

// The MPI element type and operation. Combining float16 and bfloat16 computes in float32 and rounds
// once, to nearest even; max and min of floats pass NaN on (MPI's own leave it open); integer sums
// wrap; bool: sum and max are "or", min is "and". Made once per process, needs MPI initialised.
MpiReduction mpi_reduction(Element element, Reduction reduction);

}  // namespace tensoropt
