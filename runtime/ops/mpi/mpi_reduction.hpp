// Reductions of every element type as MPI operations.
#pragma once

#include <mpi.h>

#include "collective.hpp"

namespace tensoropt {

struct MpiReduction {
  MPI_Datatype type;
  MPI_Op op;
};

// The MPI element type and operation. float16 and bfloat16 are combined in float32 and rounded
// once, to nearest even; max and min of floats propagate NaN (MPI leaves this open); integer sums
// wrap; for bool, sum and max are "or", min is "and". Created once per process; needs MPI
// initialised.
MpiReduction mpi_reduction(Element element, Reduction reduction);

}  // namespace tensoropt
