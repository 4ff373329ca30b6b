#include "kinds.hpp"
#include "run.hpp"

namespace tensoropt::kinds {
namespace {

void run(const Run& run) {
  Shape piece = run.shape;
  piece[std::size_t(run.node.cut_dim)] /= std::int64_t(run.ranks);
  const auto split = run.cut(piece, run.node.cut_dim);
  const auto concat = run.cut(piece, run.node.join_dim);
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

const Kind& all_to_all() {
  static constexpr Kind kKind{
      .name = "AllToAll",
      .cuts = "split_dim",
      .joins = "concat_dim",
      .overlap = Overlap::ReadsX,
      .algorithms =
          [](double ranks, double rounds) {
            return Algorithms{{rounds, rounds / 2}, {ranks - 1, (ranks - 1) / ranks}};
          },
      .run = run,
  };
  return kKind;
}

}  // namespace tensoropt::kinds
