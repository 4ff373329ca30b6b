#include "kinds.hpp"
#include "run.hpp"

namespace tensoropt::kinds {
namespace {

void run(const Run& run) {
  const auto row = count_of_row(run.shape);
  std::vector<std::size_t> sent, received;
  for (std::size_t place = 0; place < run.ranks; ++place) {
    sent.push_back(std::size_t(run.rows[2 * place]) * row);
    received.push_back(std::size_t(run.rows[2 * place + 1]) * row);
  }
  run.transport.all_to_all_unequal(run.x, sent.data(), run.y, received.data());
}

}  // namespace

// Each place receives any number of rows of each place's x, in the order of places.
const Kind& all_to_all_rows() {
  static constexpr Kind kKind{
      .name = "AllToAllRows",
      .has_rows = true,
      .algorithms = [](double ranks,
                       double) { return Algorithms{{ranks - 1, (ranks - 1) / ranks}}; },
      .run = run,
  };
  return kKind;
}

}  // namespace tensoropt::kinds
