#include "run.hpp"

namespace tensoropt {

std::size_t Run::most() const {
  return std::max(transport.most_packed() / ranks / element.bytes, std::size_t{1}) * element.bytes;
}

Cut Run::cut(const Shape& piece, std::int64_t dim) const {
  return cut_of(piece, std::size_t(dim), ranks, element.bytes);
}

const void* Run::packed(const Cut& cut, Span span) const {
  const auto* tensor = at(x, span.offset(cut));
  if (span.is_contiguous(cut)) return tensor;
  auto* pieces = static_cast<char*>(transport.scratch(0, ranks * span.bytes));
  if (span.bytes > cut.chunk_bytes) {
    transport.pack({span.bytes / cut.chunk_bytes, ranks, cut.chunk_bytes}, tensor, pieces);
  } else {
    for (std::size_t i = 0; i < ranks; ++i)
      transport.copy(tensor + i * cut.chunk_bytes, pieces + i * span.bytes, span.bytes);
  }
  return pieces;
}

void* Run::received(const Cut& cut, Span span) const {
  if (span.is_contiguous(cut)) return at(y, span.offset(cut));
  return transport.scratch(1, ranks * span.bytes);
}

void Run::unpack(const Cut& cut, Span span, const void* pieces) const {
  auto* tensor = at(y, span.offset(cut));
  if (pieces == tensor) return;
  if (span.bytes > cut.chunk_bytes) {
    transport.unpack({span.bytes / cut.chunk_bytes, ranks, cut.chunk_bytes}, pieces, tensor);
  } else {
    for (std::size_t i = 0; i < ranks; ++i)
      transport.copy(at(pieces, i * span.bytes), tensor + i * cut.chunk_bytes, span.bytes);
  }
}

void run(const Collective& node, const ElementInfo& element, const Shape& shape, const void* x,
         void* y, Transport& transport, const std::int64_t* rows) {
  const Run run{node, element, shape, x, y, transport, rows};
  if (run.count == 0 && !rows) return;
  if (run.ranks > 1) node.kind->run(run);
  else if (x != y) transport.copy(x, y, run.bytes());
}

}  // namespace tensoropt
