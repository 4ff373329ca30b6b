#include "minplus.hpp"

#include <algorithm>

#include "kernels.hpp"
#include "product.hpp"

namespace tensoropt::search {
namespace {

// Minimises over v, a row of the output at a time.
struct StepUp {
  const Step& step;
  std::vector<const double*> tables;
  std::vector<std::size_t> rows;  // inputs that have the row's dimensions
  std::vector<double> sum, temporary;

  StepUp(const Step& s, const Values& values) : step(s), sum(s.values) {
    for (int id : step.inputs) tables.push_back(values.of(id));
    for (std::size_t i = 0; i < tables.size(); ++i)
      if (step.access[i].row) rows.push_back(i);
  }

  void row(double* out, const std::size_t* offset) {
    std::fill(sum.begin(), sum.end(), 0.0);
    for (std::size_t i = 0; i < tables.size(); ++i)
      if (!step.access[i].row)
        add_strided(sum.data(), tables[i] + offset[i], stride(i), step.values);
    if (rows.empty()) std::fill_n(out, step.row, least(sum.data(), step.values));
    else if (rows.size() == 1)
      min_one(out, at(rows[0], offset), stride(rows[0]), sum.data(), step.values, step.row);
    else if (rows.size() == 2)
      min_two(out, at(rows[0], offset), stride(rows[0]), at(rows[1], offset), stride(rows[1]),
              sum.data(), step.values, step.row);
    else many(out, offset);
  }

  void many(double* out, const std::size_t* offset) {
    std::fill_n(out, step.row, kInfinity);
    for (std::size_t v = 0; v < step.values; ++v) {
      temporary.assign(step.row, sum[v]);
      for (std::size_t i : rows) add_row(temporary.data(), at(i, offset) + v * stride(i), step.row);
      min_row(out, temporary.data(), step.row);
    }
  }

  const double* at(std::size_t i, const std::size_t* offset) const { return tables[i] + offset[i]; }
  std::size_t stride(std::size_t i) const { return step.access[i].stride_v; }
};

// Minimises over v, all rows along the last outer dimension at a time.
struct ProductUp : Product {
  using Product::Product;

  void rows(double* out, const std::size_t* offset) {
    const Terms terms = sums(offset);
    min_product(out, tables[factor] + offset[factor], step.access[factor].stride_v, terms.first,
                terms.stride, step.values, m, n);
  }
};

Numbers step_up(const Plan& plan, const Step& step, const Values& values, const Token* token) {
  Numbers out(plan.cells[step.output]);
  auto each = [&](const Step& loops, auto fill) {
    const std::size_t rows = rows_of(loops);
    Lookout lookout(token, double(out.size()) * double(step.values) / double(rows));
    lookout.look();
    each_row(loops, 0, rows, [&](std::size_t to, const std::size_t* offset) {
      fill(&out[to], offset);
      lookout.done();
    });
  };
  if (const auto factor = factor_of(step)) {
    ProductUp work(step, *factor, values);
    each(work.step, [&](double* to, const std::size_t* offset) { work.rows(to, offset); });
  } else {
    StepUp work(step, values);
    each(step, [&](double* to, const std::size_t* offset) { work.row(to, offset); });
  }
  return out;
}

}  // namespace

Numbers weigh(const Table& table, const Weights& weights) {
  Numbers out(table.size());
  const bool plain = weights.fixed == 0 || table.fixed.empty();
  for (std::size_t i = 0; i < out.size(); ++i)  // zero times infinity is not a number
    out[i] = table.time[i] == kInfinity ? kInfinity : weights.time * table.time[i];
  for (std::size_t i = 0; !plain && i < out.size(); ++i) out[i] += weights.fixed * table.fixed[i];
  if (weights.limit == kInfinity || table.transient.empty()) return out;
  for (std::size_t i = 0; i < out.size(); ++i)
    if (table.transient[i] > weights.limit) out[i] = kInfinity;
  return out;
}

Values weighed(const Plan& plan, const Weights& weights) {
  Values values{std::vector<Numbers>(plan.scope.size()), &plan};
  values.given.resize(plan.scope.size());
  for (std::size_t id = 0; id < plan.base.size(); ++id) {
    if (plan.same[id] != int(id)) continue;
    const Table& table = *plan.base[id];
    const bool as_is = weights.time == 1 && (weights.fixed == 0 || table.fixed.empty()) &&
                       (weights.limit == kInfinity || table.transient.empty());
    if (as_is) values.given[id] = table.time.data();
    else values.tables[id] = weigh(table, weights);
  }
  return values;
}

Values eliminate(const Plan& plan, const Weights& weights, const Token* token) {
  Values values = weighed(plan, weights);
  for (const Step& step : plan.steps) {
    if (plan.same[step.output] != step.output) continue;
    values.tables[step.output] = step_up(plan, step, values, token);
  }
  return values;
}

double least_sum(const Plan& plan, const Weights& weights, const Token* token) {
  Values values = weighed(plan, weights);
  std::vector<int> readers(plan.scope.size(), 0);
  auto each_distinct = [&](auto visit) {
    for (const Step& step : plan.steps)
      if (plan.same[step.output] == step.output) visit(step);
  };
  each_distinct([&](const Step& step) {
    for (int id : step.inputs) ++readers[plan.same[id]];
  });
  each_distinct([&](const Step& step) {
    values.tables[step.output] = step_up(plan, step, values, token);
    for (int id : step.inputs)
      if (const int first = plan.same[id]; --readers[first] == 0) values.tables[first] = Numbers();
  });
  return values.total();
}

}  // namespace tensoropt::search
