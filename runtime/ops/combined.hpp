// Several collectives of one kind, group and element type as one: fewer waits for the other ranks.
#pragma once

#include <vector>

#include "transport.hpp"

namespace tensoropt {

// One of the tensors: x of `shape`, and where its y goes.
struct Piece {
  Collective node;
  Shape shape;
  const void* x;
  void* y;
};

// Runs an AllReduce, AllGather or ReduceScatter of each of `pieces`, which agree in all but shape
// and dimension. Where a transport packs, small ones go through its buffers together; otherwise
// all of them are one launch.
void run_combined(const std::vector<Piece>& pieces, const ElementInfo& element,
                  Transport& transport);

}  // namespace tensoropt
