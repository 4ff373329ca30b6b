#include "transport.hpp"

#include <algorithm>

namespace tensoropt {
namespace {

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
  std::size_t count = count_of(shape);
  std::size_t ranks = node.group.size();

  std::size_t bytes() const { return count * element.bytes; }

  // Bytes of a piece that are packed at a time.
  std::size_t most() const {
    return std::max(transport.most_packed() / ranks / element.bytes, std::size_t{1}) *
           element.bytes;
  }

  // The layout of pieces of shape `piece`, one per rank, in the tensor that they form along `dim`.
  Cut cut(const Shape& piece, std::int64_t dim) const {
    return cut_of(piece, std::size_t(dim), ranks, element.bytes);
  }

  // A span of the pieces of x, packed; x itself if the span is contiguous.
  const void* packed(const Cut& cut, Span span) const {
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

  // The receive buffer for a span of the pieces of y: y itself if the span is contiguous.
  void* received(const Cut& cut, Span span) const {
    if (span.is_contiguous(cut)) return at(y, span.offset(cut));
    return transport.scratch(1, ranks * span.bytes);
  }

  // Copies received pieces to their places in y.
  void unpack(const Cut& cut, Span span, const void* pieces) const {
    auto* tensor = at(y, span.offset(cut));
    if (pieces == tensor) return;
    if (span.bytes > cut.chunk_bytes) {
      transport.unpack({span.bytes / cut.chunk_bytes, ranks, cut.chunk_bytes}, pieces, tensor);
    } else {
      for (std::size_t i = 0; i < ranks; ++i)
        transport.copy(at(pieces, i * span.bytes), tensor + i * cut.chunk_bytes, span.bytes);
    }
  }
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

void all_gather(const Run& run) {
  const auto cut = run.cut(run.shape, run.node.dim);
  if (cut.outer <= run.transport.most_rows())
    return run.transport.all_gather(run.x, run.y, run.count / cut.outer, cut.outer);
  in_spans(run.bytes(), cut.chunk_bytes, run.bytes(), run.most(), [&](Span span) {
    void* pieces = run.received(cut, span);
    run.transport.all_gather(at(run.x, span.first), pieces, span.bytes / run.element.bytes, 1);
    run.unpack(cut, span, pieces);
  });
}

void reduce_scatter(const Run& run) {
  const auto cut = run.cut(run.node.output_shape(run.shape), run.node.dim);
  const auto bytes = run.bytes() / run.ranks, size = run.element.bytes;
  const auto reduction = run.node.reduction;
  if (cut.outer <= run.transport.most_rows())
    return run.transport.reduce_scatter(run.x, run.y, bytes / size / cut.outer, cut.outer,
                                        reduction);
  in_spans(bytes, cut.chunk_bytes, bytes, run.most(), [&](Span span) {
    const void* pieces = run.packed(cut, span);
    run.transport.reduce_scatter(pieces, at(run.y, span.first), span.bytes / size, 1, reduction);
  });
}

void all_to_all(const Run& run) {
  Shape piece = run.shape;
  piece[std::size_t(run.node.split_dim)] /= std::int64_t(run.ranks);
  const auto split = run.cut(piece, run.node.split_dim);
  const auto concat = run.cut(piece, run.node.concat_dim);
  const auto bytes = run.bytes() / run.ranks, most = run.most(), size = run.element.bytes;
  const auto step = [&](Span span) {
    void* pieces = run.received(concat, span);
    run.transport.all_to_all(run.packed(split, span), pieces, span.bytes / size);
    run.unpack(concat, span, pieces);
  };
  // The wider of the two chunks is a multiple of the narrower.
  const auto [narrow, wide] = std::minmax(split.chunk_bytes, concat.chunk_bytes);
  if (narrow == bytes) return step({0, bytes});  // contiguous on both sides
  if (wide <= most) return in_spans(bytes, wide, bytes, most, step);
  if (narrow <= most) return in_spans(bytes, narrow, wide, most, step);
  in_spans(bytes, size, narrow, most, step);
}

}  // namespace

void run(const Collective& node, const ElementInfo& element, const Shape& shape, const void* x,
         void* y, Transport& transport) {
  const Run run{node, element, shape, x, y, transport};
  if (run.count == 0) return;
  if (run.ranks == 1) {
    if (x != y) transport.copy(x, y, run.bytes());
    return;
  }
  switch (node.kind) {
    case Kind::AllReduce: return transport.all_reduce(x, y, run.count, node.reduction);
    case Kind::AllGather: return all_gather(run);
    case Kind::ReduceScatter: return reduce_scatter(run);
    case Kind::AllToAll: return all_to_all(run);
    case Kind::CollectivePermute:
      return transport.exchange(x, y, run.count, node.place_of(node.target),
                                node.place_of(node.source));
    case Kind::Broadcast: return transport.broadcast(x, y, run.count, node.place_of(node.source));
    case Kind::Send: return transport.send(x, run.count, node.place_of(node.target));
    case Kind::Recv: return transport.recv(y, run.count, node.place_of(node.source));
  }
}

}  // namespace tensoropt
