// The four collectives: their attributes, the shapes they give, and their execution over MPI.
#pragma once

#include <mpi.h>

#include <string>

#include "element.hpp"
#include "reduction.hpp"

namespace tensoropt {

enum class Kind { AllReduce, AllGather, ReduceScatter, AllToAll };

const char *kind_name(Kind kind);

// A collective as its node says it. `dim`: AllGather and ReduceScatter; `split_dim` and
// `concat_dim`: AllToAll; `reduction`: AllReduce and ReduceScatter.
struct Collective {
  Kind kind;
  Shape group;
  std::int64_t dim = 0;
  std::int64_t split_dim = 0;
  std::int64_t concat_dim = 0;
  Reduction reduction = Reduction::Sum;

  // The shape of y for x of `shape`. Throws where a dimension does not exist or does not divide by
  // the group's size.
  Shape output_shape(const Shape &shape) const;

  // One line with all that the group's ranks must have in common.
  std::string describe(const ElementInfo &element, const Shape &shape) const;

  void run(MPI_Comm comm, const ElementInfo &element, const Shape &shape, const void *x,
           void *y) const;
};

}  // namespace tensoropt
