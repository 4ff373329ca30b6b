// Tensors cut along one dimension: the pieces next to each other, or in their places.
#pragma once

#include <cstddef>
#include <memory>

#include "ort_api.hpp"

namespace tensoropt {

// A contiguous tensor seen as [outer, pieces, chunk]: `chunk_bytes` covers the piece's share of the
// cut dimension and everything inside it.
struct Cut {
  std::size_t outer;
  std::size_t pieces;
  std::size_t chunk_bytes;

  bool is_contiguous() const { return outer == 1 || pieces == 1; }
};

// How `pieces` tensors of shape `piece` lie in the tensor they make up along `dim`.
Cut cut_of(const Shape &piece, std::size_t dim, std::size_t pieces, std::size_t element_bytes);

// [outer, pieces, chunk] -> [pieces, outer, chunk], and back.
void pack(const Cut &cut, const void *tensor, void *pieces);
void unpack(const Cut &cut, const void *pieces, void *tensor);

// Memory of at least `bytes` that the calling thread reuses from call to call; `index` tells
// buffers apart that are needed at the same time.
void *scratch(std::size_t index, std::size_t bytes);

}  // namespace tensoropt
