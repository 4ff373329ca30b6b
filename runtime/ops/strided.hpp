// Tensors cut along one dimension: the pieces next to each other, or in their places.
#pragma once

#include <cstddef>

#include "shape.hpp"

namespace tensoropt {

// A contiguous tensor seen as [outer, pieces, chunk]: `chunk_bytes` covers the piece's share of the
// cut dimension and everything inside it. With outer = 1 the pieces lie one after another.
struct Cut {
  std::size_t outer;
  std::size_t pieces;
  std::size_t chunk_bytes;
};

// How `pieces` tensors of shape `piece` lie in the tensor they make up along `dim`.
Cut cut_of(const Shape& piece, std::size_t dim, std::size_t pieces, std::size_t element_bytes);

// [rows, columns] chunks of `bytes` to [columns, rows], on the host.
void transpose_chunks(std::size_t rows, std::size_t columns, std::size_t bytes, const void* from,
                      void* to);

// Host memory of at least `bytes` that the calling thread reuses from call to call; `index` (0 or
// 1) tells buffers apart that are needed at the same time.
void* thread_scratch(std::size_t index, std::size_t bytes);

}  // namespace tensoropt
