// Several collectives of one kind, group and element type fused: ranks wait for each other once.
#pragma once

#include <vector>

#include "run.hpp"

namespace tensoropt {

// One of the fused tensors: x of `shape`, and the buffer of its y.
struct Piece {
  Collective node;
  Shape shape;
  const void* x;
  void* y;
};

// Runs the collectives of `pieces`, which agree in everything except shape and dimension. If the
// transport packs, small pieces share its buffers; otherwise all pieces are one launch.
void run_combined(const std::vector<Piece>& pieces, const ElementInfo& element,
                  Transport& transport);

}  // namespace tensoropt
