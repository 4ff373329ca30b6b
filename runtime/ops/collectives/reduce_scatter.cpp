#include "kinds.hpp"
#include "run.hpp"

namespace tensoropt::kinds {
namespace {

void run(const Run& run) {
  const auto cut = run.cut(run.node.output_shape(run.shape), run.node.cut_dim);
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

}  // namespace

const Kind& reduce_scatter() {
  static constexpr Kind kKind{
      .name = "ReduceScatter",
      .reduces = true,
      .cuts = "dim",
      .overlap = Overlap::ReadsX,
      .algorithms = [](double ranks,
                       double rounds) { return Algorithms{{rounds, (ranks - 1) / ranks}}; },
      .run = run,
      .run_packed =
          [](const Collective& node, Transport& transport, const void* x, void* y,
             std::size_t count) { transport.reduce_scatter(x, y, count, 1, node.reduction); },
  };
  return kKind;
}

}  // namespace tensoropt::kinds
