#include "minimise.hpp"

#include <algorithm>
#include <utility>

namespace tensoropt::search {
namespace {

// Least weighted sum over a range of levels, dividing the range where it can still hold the best.
struct LevelSearch {
  struct Bound {
    double first = 0, second = 0;
  };

  const Prepared& whole;
  const std::vector<double>& levels;
  const Token* token;
  const Line first, second;  // the second one decides among equals, if it has a weight
  Supported best{};
  double best_second = 0;

  bool breaks_ties() const { return second.time != 0 || second.memory != 0; }

  // Whether no level from `low` on can hold anything better, when all choices are at least `known`.
  bool hopeless(std::ptrdiff_t low, const Bound& known) const {
    const double a = known.first + first.memory * levels[low];
    const double b = known.second + second.memory * levels[low];
    return a > best.bound || (a == best.bound && b >= best_second);
  }

  void search(std::ptrdiff_t low, std::ptrdiff_t high, std::ptrdiff_t probe, const Bound& known) {
    if (low > high || hopeless(low, known)) return;
    const Values values =
        eliminate(whole.numbers, {first.time, first.memory, levels[probe]}, token);
    if (values.total() == kInfinity) return search(probe + 1, high, high, known);
    Values ties;
    if (breaks_ties())
      ties = among_ties(whole.numbers, values, {second.time, second.memory, levels[probe]}, token);
    const auto choice = decode(whole.numbers, values, breaks_ties() ? &ties : nullptr);
    const Cost cost = cost_of(whole.model, choice);
    const double transient = std::max(cost.transient, levels[0]);
    const Bound bound{values.total() + value(first, whole.model.base),
                      breaks_ties() ? value(second, cost) : 0};
    const Bound here{bound.first + first.memory * transient,
                     bound.second + second.memory * transient};
    if (std::pair(here.first, here.second) < std::pair(best.bound, best_second)) {
      best = {here.first, {cost, expand(whole.model, choice)}};
      best_second = here.second;
    }
    const auto reached = std::lower_bound(levels.begin(), levels.end(), transient) - levels.begin();
    search(probe + 1, high, (probe + 1 + high) / 2, known);
    search(low, reached - 1, (low + reached - 1) / 2, bound);
  }

  static double value(const Line& line, const Cost& cost) {
    return line.time * cost.time + line.memory * cost.fixed;
  }
};

}  // namespace

Supported minimise(const Prepared& whole, const std::vector<double>& levels, double time,
                   double memory, const Token* token) {
  const auto last = std::ptrdiff_t(levels.size()) - 1;
  const bool corner = time == 0 || memory == 0;
  LevelSearch search{
      whole, levels, token, {time, memory}, {corner ? memory : 0, corner ? time : 0}};
  search.search(0, last, last, {});
  return std::move(search.best);
}

}  // namespace tensoropt::search
