#include "refine.hpp"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <optional>
#include <set>
#include <sstream>

#include "memory.hpp"
#include "narrow.hpp"

namespace tensoropt::search {
namespace {

// Share of the slack that the range of levels may take up. Ablation: split-levels.
constexpr double kSplitAt = 0.125;

template <class F>
void each_table(const Model& model, F f) {
  for (const auto& node : model.nodes) f(*node);
  for (const auto& edge : model.edges) f(*edge.table);
}

double least_transient(const Table& table) {
  if (table.transient.empty()) return 0;
  double low = kInfinity;
  for (std::size_t i = 0; i < table.size(); ++i)
    if (table.time[i] != kInfinity) low = std::min(low, table.transient[i]);
  return low;
}

double line_value(const Line& line, const Cost& cost, double transient) {
  return line.time * cost.time + line.memory * (cost.fixed + transient);
}

struct Range {
  double low, high;  // of the transient maximum
};

// A model that is being narrowed, with its bounds.
struct State {
  Model model;
  Plan plan;
  Bounds bounds;
  double slack = kInfinity;  // distance of the best assignment below the mixed line
};

class BoxSearch {
 public:
  BoxSearch(const Box& box, const Effort& effort, const Token& token, std::vector<Solution>& found)
      : box_(box), effort_(effort), token_(token), found_(found) {}

  void search(const Prepared& whole, Range range) {
    const Bounds* usable = range.high == kInfinity ? &whole.bounds : nullptr;
    if (auto state = narrow(whole.model, whole.plan, usable, range)) finish(*state, range);
  }

 private:
  // Drops entries until hardly any more go; nothing if the box is proven empty.
  std::optional<State> narrow(Model model, Plan plan, const Bounds* known, Range range) {
    for (;;) {
      token_.check();
      State state{std::move(model), std::move(plan), {}, kInfinity};
      if (!bound(state, known, range)) return std::nullopt;
      known = nullptr;
      const std::size_t before = entries(state.model);
      auto next = drop(state, range);
      if (!next) return std::nullopt;
      if (double(entries(*next)) >= kSmaller * double(before)) return state;
      model = std::move(*next);
      plan = make_plan(model);
    }
  }

  static std::size_t entries(const Model& model) {
    std::size_t total = model.nodes.size();
    for (const auto& node : model.nodes) total += node->size();
    return total;
  }

  // Computes the bounds of the three lines; false if one of them excludes every assignment.
  bool bound(State& state, const Bounds* known, Range range) const {
    const double low = transient_floor(state.model, range);
    auto line = [&](const Line& line, Outside& outside_of, const Outside* ready) {
      if (line.limit == kInfinity) return true;
      const double base = line_value(line, state.model.base, low);
      if (ready && !ready->empty()) {
        outside_of = *ready;
        return true;
      }
      Values values = eliminate(state.plan, {line.time, line.memory, range.high}, &token_);
      state.slack = loosen(line.limit) - base - values.total();
      if (state.slack < 0) return false;
      outside_of = outside(state.plan, std::move(values), Around::All, &token_);
      return true;
    };
    return line(box_.fastest(), state.bounds.time, known ? &known->time : nullptr) &&
           line(box_.leanest(), state.bounds.memory, known ? &known->memory : nullptr) &&
           line(box_.mixed, state.bounds.mixed, nullptr);
  }

  static double transient_floor(const Model& model, Range range) {
    double low = std::max(range.low, model.base.transient);
    each_table(model, [&](const Table& table) { low = std::max(low, least_transient(table)); });
    return low;
  }

  static bool over(const Line& line, const Outside& outside_of, const Cost& base, int table,
                   std::size_t entry, const Cost& cost, double low) {
    if (line.limit == kInfinity) return false;
    const double transient = std::max(low, cost.transient);
    const double value = line.time * cost.time + line.memory * cost.fixed;
    return outside_of[table][entry] + value + line_value(line, base, transient) >
           loosen(line.limit);
  }

  // Returns whether the three lines allow an entry in an assignment in the box.
  bool useful(const State& state, int table, std::size_t entry, const Cost& cost, double low,
              double high) const {
    if (cost.time == kInfinity || cost.transient > high) return false;
    const Bounds& b = state.bounds;
    const Cost& base = state.model.base;
    return !over(box_.fastest(), b.time, base, table, entry, cost, low) &&
           !over(box_.leanest(), b.memory, base, table, entry, cost, low) &&
           !over(box_.mixed, b.mixed, base, table, entry, cost, low);
  }

  std::optional<Model> drop(const State& state, Range range) const {
    const double low = transient_floor(state.model, range);
    return useful_part(state.model, state.plan, [&](int table, std::size_t at, const Cost& cost) {
      return useful(state, table, at, cost, low, range.high);
    });
  }

  // Splits a wide range of levels, or lists the frontier of the rest.
  void finish(State& state, Range range) {
    const auto levels = transient_levels(state.model, range.low, range.high);
    if (levels.empty()) return;
    const double spread = box_.mixed.memory * (levels.back() - levels.front());
    if (levels.size() > 1 && box_.mixed.limit != kInfinity && spread > kSplitAt * state.slack)
      return split(state, levels);
    list(std::move(state), levels);
  }

  // Lists the frontier of the box; a box that takes too long is first divided at some good points.
  void list(State state, const std::vector<double>& levels) {
    if (box_.mixed.limit == kInfinity) return keep(frontier(state, levels, effort_));
    try {
      keep(frontier(state, levels, effort_));
    } catch (const OverBudget&) {
      in_parts(std::move(state), levels);
    } catch (const OutOfMemory&) {
      in_parts(std::move(state), levels);
    }
  }

  void in_parts(State state, const std::vector<double>& levels) {
    const Effort capped{UINT64_MAX, kCap, effort_.threads};
    auto some = frontier(state, levels, capped);
    keep_best(some);
    if (some.empty()) return keep(frontier(state, levels, {UINT64_MAX, SIZE_MAX, effort_.threads}));
    keep(some);
    divide({std::move(state.model), std::move(state.plan), {}, {}}, {levels.front(), levels.back()},
           some);
  }

  std::vector<Solution> frontier(const State& state, const std::vector<double>& levels,
                                 const Effort& effort) const {
    return frontier_of(state.model, state.plan, box_, state.bounds, levels, effort, token_);
  }

  // Searches the rest of the box between neighbouring points.
  void divide(const Prepared& whole, Range range, const std::vector<Solution>& points) {
    for (std::size_t i = 0; i <= points.size(); ++i) {
      Box part = box_;
      if (i > 0) part.memory = covered(points[i - 1].cost.memory());
      if (i < points.size()) part.time = covered(points[i].cost.time);
      part.mixed.limit = part.time + part.mixed.memory * part.memory;
      BoxSearch(part, effort_, token_, found_).search(whole, range);
    }
  }

  // Returns the largest value that improves a found one by more than the box's factor.
  double covered(double value) const {
    return std::min(value - 1, std::floor(value / box_.shrink));
  }

  void keep(std::vector<Solution> more) {
    found_.insert(found_.end(), std::make_move_iterator(more.begin()),
                  std::make_move_iterator(more.end()));
  }

  void split(State& state, const std::vector<double>& levels) {
    state.bounds = {};  // to be computed for each part
    const std::size_t half = levels.size() / 2;
    for (Range part : {Range{levels.front(), levels[half - 1]}, Range{levels[half], levels.back()}})
      if (auto next = narrow(state.model, state.plan, nullptr, part)) finish(*next, part);
  }

  const Box& box_;
  const Effort effort_;
  const Token& token_;
  std::vector<Solution>& found_;
};

}  // namespace

std::vector<double> transient_levels(const Model& model, double lowest, double highest) {
  double low = std::max(lowest, model.base.transient);
  each_table(model, [&](const Table& table) { low = std::max(low, least_transient(table)); });
  if (low > highest) return {};
  std::set<double> levels{low};
  each_table(model, [&](const Table& table) {
    for (std::size_t i = 0; i < table.transient.size(); ++i)
      if (table.time[i] != kInfinity && table.transient[i] > low && table.transient[i] <= highest)
        levels.insert(table.transient[i]);
  });
  return {levels.begin(), levels.end()};
}

double need_of(const Plan& plan, int threads) {
  // Values, values among ties, and bounds.
  return plan.table_cells * 3 * sizeof(double) * threads;
}

void check_size(const Plan& plan, double budget, int threads) {
  const double need = need_of(plan, threads);
  if (need < budget) return;
  const auto [one, unit] =
      need < (1 << 30) ? std::pair(1 << 20, " MiB") : std::pair(1 << 30, " GiB");
  std::ostringstream text;
  text << std::fixed << std::setprecision(2) << "the tables of the search need about " << need / one
       << unit << " (the widest is " << plan.widest << "), expected at most " << budget / one
       << unit << "; a larger --search-memory leaves more";
  throw TooLarge(text.str());
}

void search_box(const Prepared& whole, const Box& box, const Effort& effort, const Token& token,
                std::vector<Solution>& found) {
  BoxSearch(box, effort, token, found).search(whole, {0, kInfinity});
}

}  // namespace tensoropt::search
