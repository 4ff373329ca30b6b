// Tensors split along one dimension, with contiguous or interleaved pieces.
#pragma once

#include <cstddef>

#include "shape.hpp"

namespace tensoropt {

// A contiguous tensor viewed as [outer, pieces, chunk]: `chunk_bytes` covers the piece's share of
// the split dimension and everything inside it. With outer = 1 the pieces are contiguous.
struct Cut {
  std::size_t outer;
  std::size_t pieces;
  std::size_t chunk_bytes;
};

// The layout of `pieces` tensors of shape `piece` in the tensor that they form along `dim`.
Cut cut_of(const Shape& piece, std::size_t dim, std::size_t pieces, std::size_t element_bytes);

// Transposes [rows, columns] chunks of `bytes` to [columns, rows], on the host.
void transpose_chunks(std::size_t rows, std::size_t columns, std::size_t bytes, const void* from,
                      void* to);

// Host memory of at least `bytes`, reused by the calling thread from call to call; `index` (0 or 1)
// distinguishes buffers that are needed at the same time.
void* thread_scratch(std::size_t index, std::size_t bytes);

}  // namespace tensoropt
