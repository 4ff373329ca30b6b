#include "kinds.hpp"
#include "run.hpp"

namespace tensoropt::kinds {

const Kind& all_reduce() {
  static constexpr Kind kKind{
      .name = "AllReduce",
      .reduces = true,
      .overlap = Overlap::InPlace,
      .algorithms =
          [](double ranks, double rounds) {
            return Algorithms{{rounds, rounds}, {2 * rounds, 2 * (ranks - 1) / ranks}};
          },
      .run =
          [](const Run& run) {
            run.transport.all_reduce(run.x, run.y, run.count, run.node.reduction);
          },
      .run_packed = [](const Collective& node, Transport& transport, const void* x, void* y,
                       std::size_t count) { transport.all_reduce(x, y, count, node.reduction); },
  };
  return kKind;
}

}  // namespace tensoropt::kinds
