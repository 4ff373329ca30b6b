// One run of a collective on this rank: its operand, its result, and the pieces of both.
#pragma once

#include <algorithm>

#include "kind.hpp"
#include "transport.hpp"

namespace tensoropt {

// Bytes `first` to `first + bytes` of every piece: whole chunks, or a part of one chunk.
struct Span {
  std::size_t first, bytes;

  // True if these bytes of all pieces are contiguous in the tensor.
  bool is_contiguous(const Cut& cut) const { return bytes == cut.chunk_bytes; }

  // Offset of the first piece's bytes in the tensor.
  std::size_t offset(const Cut& cut) const {
    const auto within = first % cut.chunk_bytes;
    return (first - within) * cut.pieces + within;
  }
};

struct Run {
  const Collective& node;
  const ElementInfo& element;
  const Shape& shape;
  const void* x;
  void* y;
  Transport& transport;
  const std::int64_t* rows = nullptr;  // if the kind has rows
  std::size_t count = count_of(shape);
  std::size_t ranks = node.group.size();

  std::size_t bytes() const { return count * element.bytes; }

  // The places in the group of the node's source and target.
  int source() const { return node.place_of(node.source); }
  int target() const { return node.place_of(node.target); }

  // Bytes of a piece that are packed at a time.
  std::size_t most() const;

  // The layout of pieces of shape `piece`, one per rank, in the tensor that they form along `dim`.
  Cut cut(const Shape& piece, std::int64_t dim) const;

  // A span of the pieces of x, packed; x itself if the span is contiguous.
  const void* packed(const Cut& cut, Span span) const;

  // The receive buffer for a span of the pieces of y: y itself if the span is contiguous.
  void* received(const Cut& cut, Span span) const;

  // Copies received pieces to their places in y.
  void unpack(const Cut& cut, Span span, const void* pieces) const;
};

// Calls `each` for spans of whole units that cover `bytes`, none across a multiple of `limit`.
template <class Each>
void in_spans(std::size_t bytes, std::size_t unit, std::size_t limit, std::size_t most,
              const Each& each) {
  const auto step = std::max(most / unit, std::size_t{1}) * unit;
  for (std::size_t first = 0, last = 0; first < bytes; first = last) {
    last = std::min(first + step, (first / limit + 1) * limit);
    each(Span{first, last - first});
  }
}

// Runs `node` on x of `shape` (on y of that shape if there is no x), with `rows` if the kind has
// them.
void run(const Collective& node, const ElementInfo& element, const Shape& shape, const void* x,
         void* y, Transport& transport, const std::int64_t* rows = nullptr);

}  // namespace tensoropt
