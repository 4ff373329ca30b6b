// From values back to assignments.
#include <algorithm>
#include <cstring>
#include <utility>

#include "clones.hpp"
#include "kernels.hpp"
#include "minplus.hpp"

namespace tensoropt::search {
namespace {

// Returns the sum of the inputs at one entry.
double sum_at(const Step& step, const Values& values, const std::size_t* at, std::size_t v) {
  double sum = 0;
  for (std::size_t i = 0; i < step.inputs.size(); ++i)
    sum += values.of(step.inputs[i])[at[i] + v * step.access[i].stride_v];
  return sum;
}

int best_value(const Step& step, const Values& values, const Values* second,
               const std::size_t* at) {
  std::pair<double, double> low{kInfinity, kInfinity};
  int best = 0;
  for (std::size_t v = 0; v < step.values; ++v) {
    const double sum = sum_at(step, values, at, v);
    if (sum > low.first || sum == kInfinity) continue;
    const std::pair<double, double> both{sum, second ? sum_at(step, *second, at, v) : 0};
    if (both < low) low = both, best = int(v);
  }
  return best;
}

// Sets hit[x] = open[x] and total[x] is best[x]; returns whether any is set.
TENSOROPT_CLONES bool find_hits(char* hit, const char* open, const double* total,
                                const double* best, std::size_t n) {
  char any = 0;
  for (std::size_t x = 0; x < n; ++x) {
    hit[x] = static_cast<char>(open[x] & (total[x] == best[x]));
    any |= hit[x];
  }
  return any != 0;
}

TENSOROPT_CLONES void add_hits(char* into, const char* hit, std::size_t n) {
  for (std::size_t x = 0; x < n; ++x) into[x] |= hit[x];
}

// Sets into = min(into, a) at the hits.
TENSOROPT_CLONES void min_hits(double* into, const double* a, const char* hit, std::size_t n) {
  for (std::size_t x = 0; x < n; ++x) into[x] = hit[x] && a[x] < into[x] ? a[x] : into[x];
}

// Adds up the inputs over a row of a step's output, at one v; false if all sums are infinite.
bool add_inputs(std::vector<double>& total, const Step& step, const Values& values,
                const std::size_t* offset, std::size_t v) {
  double sum = 0;
  const double* rows[2] = {};  // the first two that vary along the row; more are added one by one
  int count = 0;
  auto from = [&](std::size_t i) {
    return values.of(step.inputs[i]) + offset[i] + v * step.access[i].stride_v;
  };
  for (std::size_t i = 0; i < step.inputs.size(); ++i)
    if (!step.access[i].row) sum += *from(i);
    else if (count++ < 2) rows[count - 1] = from(i);
  if (sum == kInfinity) return false;
  if (count == 0) total.assign(step.row, sum);
  else if (count == 1) set_plus(total.data(), rows[0], sum, step.row);
  else set_sum(total.data(), rows[0], rows[1], sum, step.row);
  for (std::size_t i = 0, seen = 0; count > 2 && i < step.inputs.size(); ++i)
    if (step.access[i].row && ++seen > 2) add_row(total.data(), from(i), step.row);
  return true;
}

// Cells that a best assignment may pass through, and their least cost under other weights.
class Ties {
 public:
  Ties(const Plan& plan, const Values& first, const Token* token)
      : plan_(plan), first_(first), token_(token), open_(plan.scope.size()) {
    of(plan.last().output)[0] = 1;
    for (auto step = plan.steps.rbegin(); step != plan.steps.rend(); ++step)
      each_tie(*step, [&](std::size_t, const std::size_t* offset, std::size_t v, const char* hit) {
        mark(*step, offset, v, hit);
      });
  }

  void fill(Values& second) const {
    std::vector<double> total;
    for (const Step& step : plan_.steps) {
      if (open_[step.output].empty()) continue;
      auto& out = second.tables[step.output];
      out.assign(plan_.cells[step.output], kInfinity);
      total.resize(step.row);
      each_tie(step,
               [&](std::size_t to, const std::size_t* offset, std::size_t v, const char* hit) {
                 if (!add_inputs(total, step, second, offset, v)) return;
                 min_hits(&out[to], total.data(), hit, step.row);
               });
    }
  }

 private:
  std::vector<char>& of(int table) {
    auto& cells = open_[plan_.same[table]];
    if (cells.empty()) cells.resize(plan_.cells[table]);
    return cells;
  }

  void mark(const Step& step, const std::size_t* offset, std::size_t v, const char* hit) {
    for (std::size_t i = 0; i < step.inputs.size(); ++i) {
      char* cells = &of(step.inputs[i])[offset[i] + v * step.access[i].stride_v];
      if (step.access[i].row) add_hits(cells, hit, step.row);
      else *cells = 1;
    }
  }

  // Calls f(offset of the row, offsets of the inputs, v, hit) for each row of the output. `hit`
  // marks the open cells that reach their value by v; rows without a hit are skipped.
  template <class F>
  void each_tie(const Step& step, F f) const {
    const auto& open = open_[step.output];
    if (open.empty()) return;  // never reached, or the same as an earlier one
    const double* best = first_.of(step.output);
    std::vector<double> total(step.row);
    std::vector<char> hit(step.row);
    Lookout lookout(token_, double(step.row) * double(step.values));
    lookout.look();
    each_row(step, 0, rows_of(step), [&](std::size_t to, const std::size_t* offset) {
      if (!std::memchr(&open[to], 1, step.row)) return;
      lookout.done();
      for (std::size_t v = 0; v < step.values; ++v) {
        if (!add_inputs(total, step, first_, offset, v)) continue;
        if (find_hits(hit.data(), &open[to], total.data(), best + to, step.row))
          f(to, offset, v, hit.data());
      }
    });
  }

  const Plan& plan_;
  const Values& first_;
  const Token* const token_;
  std::vector<std::vector<char>> open_;  // of the first of equal tables
};

}  // namespace

Values among_ties(const Plan& plan, const Values& first, const Weights& weights,
                  const Token* token) {
  Values second = weighed(plan, weights);
  Ties(plan, first, token).fill(second);
  return second;
}

std::vector<int> decode(const Plan& plan, const Values& values, const Values* second) {
  std::vector<int> choice(plan.domain.size(), 0);
  std::vector<std::size_t> at;
  for (auto step = plan.steps.rbegin(); step != plan.steps.rend(); ++step) {
    if (step->var < 0) continue;
    choice[step->var] = 0;
    at.clear();
    for (int id : step->inputs) at.push_back(offset_of(plan, id, choice));
    choice[step->var] = best_value(*step, values, second, at.data());
  }
  return choice;
}

}  // namespace tensoropt::search
