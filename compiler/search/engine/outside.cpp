// The least sum outside every entry of every table.
#include <algorithm>

#include "kernels.hpp"
#include "minplus.hpp"
#include "product.hpp"

namespace tensoropt::search {
namespace {

// Lowers the joint minimum of every input entry by the sums through it, one row of the output at a
// time.
struct StepDown {
  const Step& step;
  std::vector<const double*> tables;
  std::vector<double*> joint;
  std::vector<std::size_t> rows,
      singles;  // inputs that have the row's dimensions, and inputs without them
  std::vector<double> total;

  StepDown(const Plan& plan, const Step& s, const Values& values, Outside& result)
      : step(s), total(s.row) {
    for (std::size_t i = 0; i < step.inputs.size(); ++i) {
      tables.push_back(values.of(step.inputs[i]));
      joint.push_back(result[plan.same[step.inputs[i]]].data());
      (step.access[i].row ? rows : singles).push_back(i);
    }
  }

  void row(const double* above, const std::size_t* offset) {
    if (least(above, step.row) == kInfinity) return;
    for (std::size_t v = 0; v < step.values; ++v) {
      double sum = 0;
      for (std::size_t i : singles) sum += tables[i][at(i, offset, v)];
      if (sum == kInfinity) continue;
      const double low = lower_rows(above, offset, v, sum);
      for (std::size_t i : singles) {
        double& known = joint[i][at(i, offset, v)];
        known = std::min(known, low);
      }
    }
  }

  // Returns the least total.
  double lower_rows(const double* above, const std::size_t* offset, std::size_t v, double sum) {
    if (rows.empty()) return least(above, step.row) + sum;
    if (rows.size() == 1) {
      const std::size_t from = at(rows[0], offset, v);
      return lower_row(joint[rows[0]] + from, above, tables[rows[0]] + from, sum, step.row);
    }
    set_sum(total.data(), above, tables[rows[0]] + at(rows[0], offset, v), sum, step.row);
    for (std::size_t k = 1; k < rows.size(); ++k)
      add_row(total.data(), tables[rows[k]] + at(rows[k], offset, v), step.row);
    for (std::size_t i : rows) min_row(joint[i] + at(i, offset, v), total.data(), step.row);
    return least(total.data(), step.row);
  }

  std::size_t at(std::size_t i, const std::size_t* offset, std::size_t v) const {
    return offset[i] + v * step.access[i].stride_v;
  }
};

void transpose(std::vector<double>& to, const double* from, std::size_t stride, std::size_t rows,
               std::size_t columns) {
  to.resize(rows * columns);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c) to[c * rows + r] = from[r * stride + c];
}

// The same for a product: the minima for the factor and for the terms are products again.
struct ProductDown : Product {
  std::vector<double*> joint;
  std::vector<double> turned, turned_factor, low;

  ProductDown(const Plan& plan, const Step& s, std::size_t place, const Values& values,
              Outside& result)
      : Product(s, place, values) {
    for (int id : step.inputs) joint.push_back(result[plan.same[id]].data());
  }

  void rows(const double* above, const std::size_t* offset) {
    if (least(above, m * n) == kInfinity) return;
    const Terms terms = sums(offset);
    lower_factor(above, terms, offset[factor]);
    if (tables.size() > 1) lower_terms(above, terms, offset);
  }

  void lower_factor(const double* above, const Terms& terms, std::size_t from) {
    const std::size_t stride = step.access[factor].stride_v;
    transpose(turned, terms.first, terms.stride, step.values, m);
    low.resize(step.values * n);
    min_product(low.data(), above, n, turned.data(), step.values, m, step.values, n);
    for (std::size_t v = 0; v < step.values; ++v, from += stride)
      lower_row(joint[factor] + from, &low[v * n], tables[factor] + from, 0, n);
  }

  void lower_terms(const double* above, const Terms& terms, const std::size_t* offset) {
    const double* own = tables[factor] + offset[factor];
    transpose(turned, above, n, m, n);
    transpose(turned_factor, own, step.access[factor].stride_v, step.values, n);
    low.resize(step.values * m);
    min_product(low.data(), turned.data(), m, turned_factor.data(), step.values, n, step.values, m);
    for (std::size_t v = 0; v < step.values; ++v)
      add_row(&low[v * m], terms.first + v * terms.stride, m);
    for (std::size_t i = 0; i < tables.size(); ++i)
      if (i != factor) lower_term(i, joint[i] + offset[i]);
  }

  void lower_term(std::size_t i, double* to) const {
    for (std::size_t v = 0; v < step.values; ++v, to += step.access[i].stride_v)
      for (std::size_t r = 0; r < m; ++r)
        to[r * along[i]] = std::min(to[r * along[i]], low[v * m + r]);
  }
};

void step_down(const Plan& plan, const Step& step, const Values& values, Outside& result,
               const Token* token) {
  const double* above = result[step.output].data();
  auto each = [&](const Step& loops, auto lower) {
    const std::size_t rows = rows_of(loops);
    Lookout lookout(token,
                    2 * double(plan.cells[step.output]) * double(step.values) / double(rows));
    lookout.look();
    each_row(loops, 0, rows, [&](std::size_t to, const std::size_t* offset) {
      lower(above + to, offset);
      lookout.done();
    });
  };
  if (const auto factor = factor_of(step)) {
    ProductDown work(plan, step, *factor, values, result);
    each(work.step, [&](const double* at, const std::size_t* offset) { work.rows(at, offset); });
  } else {
    StepDown work(plan, step, values, result);
    each(step, [&](const double* at, const std::size_t* offset) { work.row(at, offset); });
  }
}

// Turns the least totals through the entries of a table into the least sums outside it.
void take_off(Numbers& total, const double* own) {
  for (std::size_t i = 0; i < total.size(); ++i)
    if (total[i] != kInfinity) total[i] -= own[i];
}

}  // namespace

Outside outside(const Plan& plan, Values values, Around which, const Token* token) {
  Outside result(plan.scope.size());
  auto ready = [&](int id) {
    Numbers& known = result[plan.same[id]];
    if (known.empty()) known.assign(plan.cells[id], kInfinity);
  };
  result[plan.last().output] = {values.total()};
  // A step that reads one of several equal tables comes after the first of them.
  for (auto step = plan.steps.rbegin(); step != plan.steps.rend(); ++step) {
    if (plan.same[step->output] != step->output) continue;
    for (int id : step->inputs) ready(id);
    take_off(result[step->output], values.of(step->output));
    step_down(plan, *step, values, result, token);
    if (which == Around::All) continue;
    result[step->output] = Numbers();
    values.tables[step->output] = Numbers();
  }
  for (std::size_t id = 0; id < plan.base.size(); ++id) {
    if (plan.same[id] != int(id)) continue;
    ready(int(id));
    take_off(result[id], values.of(int(id)));
  }
  return result;
}

}  // namespace tensoropt::search
