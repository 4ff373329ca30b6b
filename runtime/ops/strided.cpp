#include "strided.hpp"

#include <cstring>
#include <memory>

namespace tensoropt {
namespace {

// Copies chunk (i, j) of `from` to chunk (j, i) of `to`. With a chunk size known at compile time,
// each small copy becomes one move.
template <class Size>
void transpose(std::size_t rows, std::size_t columns, Size bytes, const char* from, char* to) {
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j)
      std::memcpy(to + (j * rows + i) * bytes, from + (i * columns + j) * bytes, bytes);
}

template <std::size_t Bytes>
struct Fixed {
  // NOLINTNEXTLINE(google-explicit-constructor): used like a number
  constexpr operator std::size_t() const { return Bytes; }
};

struct Buffer {
  std::unique_ptr<std::byte[]> data;
  std::size_t bytes = 0;
};

}  // namespace

Cut cut_of(const Shape& piece, std::size_t dim, std::size_t pieces, std::size_t element_bytes) {
  Cut cut{1, pieces, element_bytes};
  for (std::size_t i = 0; i < piece.size(); ++i)
    (i < dim ? cut.outer : cut.chunk_bytes) *= std::size_t(piece[i]);
  return cut;
}

void transpose_chunks(std::size_t rows, std::size_t columns, std::size_t bytes, const void* from,
                      void* to) {
  const auto* source = static_cast<const char*>(from);
  auto* target = static_cast<char*>(to);
  switch (bytes) {
    case 1: return transpose(rows, columns, Fixed<1>{}, source, target);
    case 2: return transpose(rows, columns, Fixed<2>{}, source, target);
    case 4: return transpose(rows, columns, Fixed<4>{}, source, target);
    case 8: return transpose(rows, columns, Fixed<8>{}, source, target);
    case 16: return transpose(rows, columns, Fixed<16>{}, source, target);
    default: return transpose(rows, columns, bytes, source, target);
  }
}

void* thread_scratch(std::size_t index, std::size_t bytes) {
  thread_local Buffer buffers[2];
  auto& buffer = buffers[index];
  if (buffer.bytes < bytes) {
    buffer = {};  // free first: both buffers together may not fit into memory
    buffer = {std::make_unique_for_overwrite<std::byte[]>(bytes), bytes};
  }
  return buffer.data.get();
}

}  // namespace tensoropt
