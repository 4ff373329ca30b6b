#include "minimise.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "narrow.hpp"

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
    best.take(
        {bound.first + aim.first.memory * transient, bound.second + aim.second.memory * transient},
        model, choice);
    const auto reached = std::lower_bound(levels.begin(), levels.end(), transient) - levels.begin();
    search(probe + 1, high, (probe + 1 + high) / 2, known);
    search(low, reached - 1, (low + reached - 1) / 2, bound);
  }
};

// Drops entries that cannot be part of an assignment as good as the best known, repeatedly.
class Dropping {
 public:
  Dropping(const Aim& aim, const Token* token, Best& best)
      : aim_(aim), token_(token), best_(best) {}

  void search(const Model& model, const Plan& plan, const std::vector<double>& levels) {
    if (levels.empty()) return;
    if (plan.distinct_work < kWorthwhile) return finish(model, plan, levels);
    Levels rest(levels);
    auto values = try_level(model, plan, rest, levels.size() - 1);
    if (!values) return;
    const Outside around = outside(plan, std::move(*values), Around::Given, token_);
    for (std::size_t table = 0; table < plan.base.size(); ++table)
      if (plan.same[table] == int(table)) raise(*plan.base[table], around[table], rest);
    note_least(model, rest);
    // Another assignment often makes the problem smaller; otherwise it is solved unchanged.
    for (bool first = true;; first = false) {
      const auto next = promising(model, rest);
      if (!next) return ties(model, plan, rest, around);
      try_level(model, plan, rest, *next);
      if (!first) continue;
      const auto left = part(model, plan, levels, around);
      if (!left) return;
      const Plan smaller = make_number_plan(*left, false);
      if (smaller.distinct_work < kSmaller * plan.distinct_work)
        return search(*left, smaller, transient_levels(*left));
    }
  }

 private:
  // Lower bounds of the assignments up to each level, and whether each is exact.
  struct Levels {
    const std::vector<double>& at;
    std::vector<double> least;
    std::vector<char> known;
    explicit Levels(const std::vector<double>& levels)
        : at(levels), least(levels.size(), 0), known(levels.size(), 0) {}
  };

  double sum_at(const Model& model, const Levels& rest, std::size_t i) const {
    return rest.least[i] + Aim::value(aim_.first, model.base) + aim_.first.memory * rest.at[i];
  }

  // Returns the level with the least lower bound, if that is below the best sum.
  std::optional<std::size_t> promising(const Model& model, const Levels& rest) const {
    std::optional<std::size_t> best;
    double least = best_.found.bound;
    for (std::size_t i = 0; i < rest.at.size(); ++i)
      if (const double sum = sum_at(model, rest, i); !rest.known[i] && sum < least) {
        least = sum;
        best = i;
      }
    return best;
  }

  // Raises the lower bound for all: entries dropped so far are worse than the best assignment.
  void note_least(const Model& model, const Levels& rest) {
    double least = best_.found.bound;
    for (std::size_t i = 0; i < rest.at.size(); ++i)
      least = std::min(least, sum_at(model, rest, i));
    best_.least = std::max(best_.least, least);
  }

  void finish(const Model& model, const Plan& plan, const std::vector<double>& levels) {
    if (levels.empty()) return;
    const auto last = std::ptrdiff_t(levels.size()) - 1;
    LevelSearch{model, plan, levels, token_, aim_, best_}.search(0, last, last, {});
  }

  // Finds the least second sum among the assignments with the least sum, which is known.
  void ties(const Model& model, const Plan& plan, const Levels& rest, const Outside& around) {
    if (!aim_.breaks_ties()) return;
    auto left = part(model, plan, rest.at, around);
    if (!left) return;
    std::vector<double> levels = transient_levels(*left);
    std::erase_if(levels, [&](double level) {
      const auto at = std::lower_bound(rest.at.begin(), rest.at.end(), level) - rest.at.begin();
      return std::size_t(at) < rest.at.size() &&
             sum_at(model, rest, std::size_t(at)) > best_.found.bound;
    });
    finish(*left, make_number_plan(*left, false), levels);
  }

  // Returns the entries that can be part of an assignment as good as the best.
  std::optional<Model> part(const Model& model, const Plan& plan, const std::vector<double>& levels,
                            const Outside& around) const {
    const double base = Aim::value(aim_.first, model.base), low = levels.front();
    const double best = best_.found.bound;
    const double limit = aim_.breaks_ties() ? best : loosen(best);  // whole numbers add up exactly
    return useful_part(model, plan, [&](int table, std::size_t at, const Cost& cost) {
      const double sum = around[table][at] + Aim::value(aim_.first, cost) + base;
      return sum + aim_.first.memory * std::max(low, cost.transient) <= limit;
    });
  }

  // Returns the least sums up to a level; nothing if no assignment is left there.
  std::optional<Values> try_level(const Model& model, const Plan& plan, Levels& rest,
                                  std::size_t at) {
    Values values = eliminate(plan, {aim_.first.time, aim_.first.memory, rest.at[at]}, token_);
    const double total = values.total();
    for (std::size_t i = 0; i <= at; ++i) rest.least[i] = std::max(rest.least[i], total);
    rest.known[at] = 1;
    if (total == kInfinity) return std::nullopt;
    const auto choice = decode(plan, values);
    const Cost cost = cost_of(model, choice);
    const double transient = std::max(cost.transient, rest.at.front());
    for (std::size_t i = at; i > 0 && rest.at[i - 1] >= transient; --i) rest.known[i - 1] = 1;
    best_.take({total + Aim::value(aim_.first, model.base) + aim_.first.memory * transient,
                Aim::value(aim_.second, cost) + aim_.second.memory * transient},
               model, choice);
    note_least(model, rest);
    return values;
  }

  // Every assignment costs at least the least of a table's entries up to its level.
  void raise(const Table& table, const Numbers& around, Levels& rest) const {
    if (table.transient.empty()) return;
    std::vector<double> own(rest.at.size(), kInfinity);
    for (std::size_t i = 0; i < table.size(); ++i) {
      if (table.time[i] == kInfinity) continue;
      const auto at = std::lower_bound(rest.at.begin(), rest.at.end(), table.transient[i]);
      double& known = own[std::size_t(at - rest.at.begin())];
      known = std::min(known, around[i] + Aim::value(aim_.first, table.at(i)));
    }
    for (std::size_t i = 0; i < own.size(); ++i) {
      if (i > 0) own[i] = std::min(own[i], own[i - 1]);
      rest.least[i] = std::max(rest.least[i], own[i]);
    }
  }

  const Aim& aim_;
  const Token* token_;
  Best& best_;
};

}  // namespace

Supported minimise(const Prepared& whole, const std::vector<double>& levels, double time,
                   double memory, const Token* token) {
  const bool corner = time == 0 || memory == 0;
  const Aim aim{{time, memory}, {corner ? memory : 0, corner ? time : 0}};
  Best best;
  try {
    Dropping(aim, token, best).search(whole.model, whole.numbers, levels);
  } catch (const Stopped&) {
    if (best.found.bound == kInfinity) throw;
    best.found.bound = best.least;
  }
  return std::move(best.found);
}

}  // namespace tensoropt::search
