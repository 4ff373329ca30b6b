#include "kinds.hpp"
#include "run.hpp"

namespace tensoropt::kinds {
namespace {

void run(const Run& run) {
  const auto cut = run.cut(run.shape, run.node.join_dim);
  if (cut.outer <= run.transport.most_rows())
    return run.transport.all_gather(run.x, run.y, run.count / cut.outer, cut.outer);
  in_spans(run.bytes(), cut.chunk_bytes, run.bytes(), run.most(), [&](Span span) {
    void* pieces = run.received(cut, span);
    run.transport.all_gather(at(run.x, span.first), pieces, span.bytes / run.element.bytes, 1);
    run.unpack(cut, span, pieces);
  });
}

}  // namespace

const Kind& all_gather() {
  static constexpr Kind kKind{
      .name = "AllGather",
      .joins = "dim",
      .overlap = Overlap::ReadsX,
      .algorithms = [](double ranks, double rounds) { return Algorithms{{rounds, ranks - 1}}; },
      .run = run,
      .run_packed = [](const Collective&, Transport& transport, const void* x, void* y,
                       std::size_t count) { transport.all_gather(x, y, count, 1); },
  };
  return kKind;
}

}  // namespace tensoropt::kinds
