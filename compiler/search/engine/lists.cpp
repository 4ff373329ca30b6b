#include "lists.hpp"

#include <algorithm>
#include <stdexcept>

#include "limits.hpp"
#include "parallel.hpp"
#include "points.hpp"
#include "token.hpp"

namespace tensoropt::search {
namespace {

class Eliminator {
 public:
  Eliminator(const Model& model, const Plan& plan, const Box& box, const Bounds& bounds,
             const std::vector<double>& levels, const Effort& effort, const Token& token)
      : model_(model), plan_(plan), box_(box), limiter_(model.base, box, bounds, levels),
        levels_(levels), effort_(effort), token_(token), tables_(plan.scope.size()) {}

  std::vector<Solution> run() {
    for (std::size_t id = 0; id < plan_.base.size(); ++id)
      if (plan_.same[id] == int(id)) load(int(id));
    const std::vector<const Step*> last = last_readers();
    for (const Step& step : plan_.steps) {
      if (plan_.same[step.output] != step.output) continue;
      tables_[step.output] = eliminate_step(step);
      for (int id : step.inputs)
        if (last[plan_.same[id]] == &step) lists_of(id).forget_costs();
    }
    return solutions();
  }

 private:
  Lists& lists_of(int id) { return tables_[plan_.same[id]]; }
  const Lists& lists_of(int id) const { return tables_[plan_.same[id]]; }

  // Returns, per table, the last computed step that reads it.
  std::vector<const Step*> last_readers() const {
    std::vector<const Step*> last(tables_.size());
    for (const Step& step : plan_.steps)
      if (plan_.same[step.output] == step.output)
        for (int id : step.inputs) last[plan_.same[id]] = &step;
    return last;
  }

  void load(int id) {
    const Table& table = *plan_.base[id];
    Lists& lists = tables_[id];
    Limits limits;
    for (std::size_t i = 0; i < table.size(); ++i) {
      const Cost cost = table.at(i);
      const std::int32_t level = limiter_.level_of(cost.transient);
      if (cost.time != kInfinity && level < std::int32_t(levels_.size())) {
        limiter_.set(limits, id, i);
        if (allows(limits, cost.time, cost.fixed, level)) {
          lists.time.push_back(cost.time);
          lists.fixed.push_back(cost.fixed);
          if (levels_.size() > 1) lists.level.push_back(level);
        }
      }
      lists.begin.push_back(std::uint32_t(lists.time.size()));
    }
  }

  Lists eliminate_step(const Step& step) {
    const std::size_t rows = rows_of(step);
    const std::size_t parts = std::min<std::size_t>(effort_.threads, rows);
    if (parts <= 1 || work_of(step) < kWorthwhile) return eliminate_rows(step, 0, rows);
    return in_parallel(step, rows, parts);
  }

  // Estimates the sums to form, with lists of average length.
  double work_of(const Step& step) const {
    double work = double(plan_.cells[step.output]) * double(step.values);
    for (int id : step.inputs)
      work *= std::max(1.0, double(lists_of(id).time.size()) / double(plan_.cells[id]));
    return work;
  }

  Lists in_parallel(const Step& step, std::size_t rows, std::size_t parts) {
    const std::size_t pieces = std::min<std::size_t>(rows, 8 * parts);
    std::vector<Lists> done(pieces);
    parallel(pieces, int(parts), [&](std::size_t p) {
      done[p] = eliminate_rows(step, rows * p / pieces, rows * (p + 1) / pieces);
    });
    for (std::size_t p = 1; p < pieces; ++p) done[0].append(std::move(done[p]));
    return std::move(done[0]);
  }

  Lists eliminate_rows(const Step& step, std::size_t first, std::size_t last) const {
    Lists out;
    out.width = step.inputs.size();
    CellMerger merger(levels_.size() > 1), inner(levels_.size() > 1);
    Limits limits;
    Lookout lookout(&token_, double(step.values));
    each_row(step, first, last, [&](std::size_t to, const std::size_t* offset) {
      for (std::size_t x = 0; x < step.row; ++x) {
        limiter_.set(limits, step.output, to + x);
        eliminate_cell(step, offset, x, limits, merger, inner, out);
        lookout.done();
        check(merger);
        check(inner);
      }
    });
    account(merger);
    account(inner);
    return out;
  }

  // Checks the token and the budget now and then.
  void check(CellMerger& merger) const {
    if (double(merger.candidates) <= kLook) return;
    token_.check();
    account(merger);
  }

  void account(CellMerger& merger) const {
    sums_ += merger.candidates;
    merger.candidates = 0;
    if (sums_ > effort_.sums) throw OverBudget();
  }

  List input_at(const Step& step, const std::size_t* offset, std::size_t x, std::size_t v,
                std::size_t i) const {
    const Access& access = step.access[i];
    return lists_of(step.inputs[i]).at(offset[i] + v * access.stride_v + (access.row ? x : 0));
  }

  void eliminate_cell(const Step& step, const std::size_t* offset, std::size_t x,
                      const Limits& limits, CellMerger& merger, CellMerger& inner,
                      Lists& out) const {
    static constexpr double kZero = 0;
    static constexpr std::int32_t kFirst = 0;
    const List nothing{&kZero, &kZero, &kFirst, 1};
    const std::size_t inputs = step.inputs.size();
    std::vector<Partial> partials(inputs > 2 ? step.values : 0);
    merger.begin(limits);
    for (std::size_t v = 0; v < step.values; ++v) {
      const auto value = std::int32_t(v);
      if (inputs == 0) merger.add(value, nothing, nothing);
      else if (inputs == 1) merger.add(value, input_at(step, offset, x, v, 0), nothing);
      else {
        List left = input_at(step, offset, x, v, 0);
        if (inputs > 2) {
          partials[v] = join_all(step, offset, x, v, inner);
          left = partials[v].view();
        }
        merger.add(value, left, input_at(step, offset, x, v, inputs - 1));
      }
    }
    const auto& points = merger.finish(token_);
    if (points.size() <= effort_.cap)
      for (const Joined& point : points) store(step, point, partials, out);
    else store_some(step, points, partials, out);
    out.begin.push_back(std::uint32_t(out.time.size()));
  }

  // Keeps the point nearest to the mixed line in each of `cap` slices of the range of time.
  void store_some(const Step& step, const CountedVector<Joined>& points,
                  const std::vector<Partial>& partials, Lists& out) const {
    const double first = points.front().time, span = points.back().time - first + 1;
    auto slice = [&](const Joined& p) {
      return std::size_t((p.time - first) / span * double(effort_.cap));
    };
    auto value = [&](const Joined& p) {
      return p.time + box_.mixed.memory * (p.fixed + levels_[p.level]);
    };
    for (std::size_t i = 0; i < points.size();) {
      std::size_t best = i, j = i;
      for (; j < points.size() && slice(points[j]) == slice(points[i]); ++j)
        if (value(points[j]) < value(points[best])) best = j;
      store(step, points[best], partials, out);
      i = j;
    }
  }

  void store(const Step& step, const Joined& point, const std::vector<Partial>& partials,
             Lists& out) const {
    out.time.push_back(point.time);
    out.fixed.push_back(point.fixed);
    if (levels_.size() > 1) out.level.push_back(point.level);
    out.v.push_back(point.v);
    const std::size_t inputs = step.inputs.size();
    if (inputs == 0) return;
    if (inputs > 2) partials[point.v].trace(point.left, out.from);
    else out.from.push_back(point.left);
    if (inputs > 1) out.from.push_back(point.right);
  }

  // Returns the frontier of the sums of all inputs except the last, without limits.
  Partial join_all(const Step& step, const std::size_t* offset, std::size_t x, std::size_t v,
                   CellMerger& inner) const {
    Partial total(input_at(step, offset, x, v, 0));
    for (std::size_t i = 1; i + 1 < step.inputs.size(); ++i) {
      total.join(input_at(step, offset, x, v, i), levels_.size(), inner, token_);
      check(inner);
    }
    return total;
  }

  // Traces a point back; `index[table]` is its place among all points of the table.
  std::vector<int> choice_of(std::uint32_t root) const {
    std::vector<int> choice(plan_.domain.size(), 0);
    std::vector<std::uint32_t> index(plan_.scope.size(), 0);
    index[plan_.last().output] = root;
    for (auto step = plan_.steps.rbegin(); step != plan_.steps.rend(); ++step) {
      const Lists& lists = lists_of(step->output);
      const std::uint32_t at = index[step->output];
      if (step->var >= 0) choice[step->var] = lists.v[at];
      for (std::size_t i = 0; i < step->inputs.size(); ++i) {
        const int id = step->inputs[i];
        index[id] =
            lists_of(id).begin[offset_of(plan_, id, choice)] + lists.from[at * lists.width + i];
      }
    }
    return choice;
  }

  // Decodes the result, and checks each assignment against its point.
  std::vector<Solution> solutions() const {
    const Lists& root = tables_[plan_.last().output];
    std::vector<Solution> found;
    for (std::uint32_t i = 0; i < root.time.size(); ++i) {
      const std::vector<int> choice = choice_of(i);
      const Cost cost = cost_of(model_, choice);
      if (cost.time != root.time[i] + model_.base.time ||
          cost.fixed != root.fixed[i] + model_.base.fixed)
        throw std::logic_error("a decoded choice does not cost what its point says");
      found.push_back({cost, expand(model_, choice)});
    }
    return found;
  }

  const Model& model_;
  const Plan& plan_;
  const Box& box_;
  const Limiter limiter_;
  const std::vector<double>& levels_;
  const Effort& effort_;
  const Token& token_;
  std::vector<Lists> tables_;
  mutable std::atomic<std::uint64_t> sums_{0};
};

}  // namespace

std::vector<Solution> frontier_of(const Model& model, const Plan& plan, const Box& box,
                                  const Bounds& bounds, const std::vector<double>& levels,
                                  const Effort& effort, const Token& token) {
  return Eliminator(model, plan, box, bounds, levels, effort, token).run();
}

void keep_best(std::vector<Solution>& points) {
  std::stable_sort(points.begin(), points.end(), [](const Solution& a, const Solution& b) {
    return std::pair(a.cost.time, a.cost.memory()) < std::pair(b.cost.time, b.cost.memory());
  });
  double low = kInfinity;
  std::erase_if(points, [&](const Solution& point) {
    if (point.cost.memory() >= low) return true;
    low = point.cost.memory();
    return false;
  });
}

}  // namespace tensoropt::search
