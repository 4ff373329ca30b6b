// Reductions of every element type as MPI operations.
#pragma once

#include <mpi.h>

#include <string>

#include "element.hpp"

namespace tensoropt {

enum class Reduction { Sum, Max, Min };

Reduction parse_reduction(const std::string &name);
const char *reduction_name(Reduction reduction);

struct MpiReduction {
  MPI_Datatype type;
  MPI_Op op;
};

// The MPI element type and operation. Combining float16 and bfloat16 computes in float32 and rounds
// once, to nearest even; max and min of floats pass NaN on (MPI's own leave it open); integer sums
// wrap; bool: sum and max are "or", min is "and". Made once per process, needs MPI initialised.
MpiReduction mpi_reduction(Element element, Reduction reduction);

}  // namespace tensoropt
