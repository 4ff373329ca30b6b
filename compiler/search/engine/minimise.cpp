#include "minimise.hpp"

#include <algorithm>
#include <utility>

namespace tensoropt::search {
namespace {

struct Bound {
  double first = 0, second = 0;
};

// Two weighted sums; the second breaks ties if it has a weight.
struct Aim {
  Line first, second;

  bool breaks_ties() const { return second.time != 0 || second.memory != 0; }

  static double value(const Line& line, const Cost& cost) {
    return line.time * cost.time + line.memory * cost.fixed;
  }
};

// The best assignment so far, and its second sum.
struct Best {
  Supported found{};
  double second = 0;
  double least = 0;  // lower bound of the first sum, for all assignments

  void take(const Bound& value, const Model& model, const std::vector<int>& choice) {
    if (std::pair(value.first, value.second) >= std::pair(found.bound, second)) return;
    found = {value.first, {cost_of(model, choice), expand(model, choice)}};
    second = value.second;
  }
};

// Finds the least weighted sum over a range of levels, and divides the range if necessary.
struct LevelSearch {
  const Model& model;
  const Plan& plan;
  const std::vector<double>& levels;
  const Token* token;
  const Aim aim;
  Best& best;

  // Returns whether no level from `low` on can be better, if `known` is a bound for all of them.
  bool hopeless(std::ptrdiff_t low, const Bound& known) const {
    const double a = known.first + aim.first.memory * levels[low];
    const double b = known.second + aim.second.memory * levels[low];
    return a > best.found.bound || (a == best.found.bound && b >= best.second);
  }

  void search(std::ptrdiff_t low, std::ptrdiff_t high, std::ptrdiff_t probe, const Bound& known) {
    if (low > high || hopeless(low, known)) return;
    const Values values = eliminate(plan, {aim.first.time, aim.first.memory, levels[probe]}, token);
    if (values.total() == kInfinity) return search(probe + 1, high, high, known);
    Values ties;
    if (aim.breaks_ties())
      ties = among_ties(plan, values, {aim.second.time, aim.second.memory, levels[probe]}, token);
    const auto choice = decode(plan, values, aim.breaks_ties() ? &ties : nullptr);
    const Cost cost = cost_of(model, choice);
    const double transient = std::max(cost.transient, levels[0]);
    const Bound bound{values.total() + Aim::value(aim.first, model.base),
                      aim.breaks_ties() ? Aim::value(aim.second, cost) : 0};
    if (low == 0 && std::size_t(high) + 1 == levels.size())
      best.least = bound.first + aim.first.memory * levels[0];
    best.take(
        {bound.first + aim.first.memory * transient, bound.second + aim.second.memory * transient},
        model, choice);
    const auto reached = std::lower_bound(levels.begin(), levels.end(), transient) - levels.begin();
    search(probe + 1, high, (probe + 1 + high) / 2, known);
    search(low, reached - 1, (low + reached - 1) / 2, bound);
  }
};

}  // namespace

Supported minimise(const Prepared& whole, const std::vector<double>& levels, double time,
                   double memory, const Token* token) {
  const bool corner = time == 0 || memory == 0;
  const Aim aim{{time, memory}, {corner ? memory : 0, corner ? time : 0}};
  Best best;
  const auto last = std::ptrdiff_t(levels.size()) - 1;
  try {
    LevelSearch{whole.model, whole.numbers, levels, token, aim, best}.search(0, last, last, {});
  } catch (const Stopped&) {
    if (best.found.bound == kInfinity) throw;
    best.found.bound = best.least;
  }
  return std::move(best.found);
}

}  // namespace tensoropt::search
