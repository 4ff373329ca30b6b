#include "minplus.hpp"

#include <algorithm>
#include <cmath>

#include "clones.hpp"

namespace topt::search {

namespace {

INLINE double smaller(double a, double b) { return b < a ? b : a; }

// Minima of B entries of a row, kept in registers.
template <std::size_t B>
INLINE void min_block(double* out, const double* a, std::size_t stride, const double* sum,
                      std::size_t values) {
    double low[B];
    for (std::size_t k = 0; k < B; ++k) low[k] = INF;
    for (std::size_t v = 0; v < values; ++v)
        for (std::size_t k = 0; k < B; ++k) low[k] = smaller(low[k], a[v * stride + k] + sum[v]);
    for (std::size_t k = 0; k < B; ++k) out[k] = low[k];
}

// The last block is moved back to end with the row: what it has in common with the one before comes
// out the same twice.
template <std::size_t B>
INLINE void min_blocks(double* out, const double* a, std::size_t stride, const double* sum,
                       std::size_t values, std::size_t n) {
    for (std::size_t x = 0; x + B <= n; x += B) min_block<B>(out + x, a + x, stride, sum, values);
    if (n % B != 0) min_block<B>(out + n - B, a + n - B, stride, sum, values);
}

// out[x] = min over v of a[v * stride + x] + sum[v].
CLONES void min_one(double* out, const double* a, std::size_t stride, const double* sum,
                    std::size_t values, std::size_t n) {
    if (n >= 32) min_blocks<32>(out, a, stride, sum, values, n);
    else if (n >= 8) min_blocks<8>(out, a, stride, sum, values, n);
    else min_blocks<1>(out, a, stride, sum, values, n);
}

// out[x] = min over v of a[v * stride_a + x] + b[v * stride_b + x] + sum[v].
CLONES void min_two(double* out, const double* a, std::size_t stride_a, const double* b,
                    std::size_t stride_b, const double* sum, std::size_t values, std::size_t n) {
    for (std::size_t x = 0; x < n; ++x) out[x] = INF;
    for (std::size_t v = 0; v < values; ++v)
        for (std::size_t x = 0; x < n; ++x)
            out[x] = smaller(out[x], a[v * stride_a + x] + b[v * stride_b + x] + sum[v]);
}

CLONES void add_strided(double* into, const double* a, std::size_t stride, std::size_t n) {
    for (std::size_t v = 0; v < n; ++v) into[v] += a[v * stride];
}

CLONES void add_row(double* into, const double* a, std::size_t n) {
    for (std::size_t x = 0; x < n; ++x) into[x] += a[x];
}

CLONES void set_sum(double* into, const double* a, const double* b, double sum, std::size_t n) {
    for (std::size_t x = 0; x < n; ++x) into[x] = a[x] + b[x] + sum;
}

CLONES void set_plus(double* into, const double* a, double sum, std::size_t n) {
    for (std::size_t x = 0; x < n; ++x) into[x] = a[x] + sum;
}

CLONES void min_row(double* into, const double* a, std::size_t n) {
    for (std::size_t x = 0; x < n; ++x) into[x] = smaller(into[x], a[x]);
}

CLONES double least(const double* a, std::size_t n) {
    double lane[8] = {INF, INF, INF, INF, INF, INF, INF, INF};
    std::size_t x = 0;
    for (; x + 8 <= n; x += 8)
        for (std::size_t l = 0; l < 8; ++l) lane[l] = smaller(lane[l], a[x + l]);
    for (; x < n; ++x) lane[0] = smaller(lane[0], a[x]);
    return *std::min_element(lane, lane + 8);
}

// The rows of the inputs of a step at one cell and one v, and the sum of its single values.
struct Rows {
    std::vector<const double*> tables, rows;
    double sum = 0;

    Rows(const Step& step, const Values& values) {
        for (int id : step.inputs) tables.push_back(values.of(id));
    }

    void at(const Step& step, const std::size_t* offset, std::size_t v) {
        rows.clear();
        sum = 0;
        for (std::size_t i = 0; i < tables.size(); ++i) {
            const double* p = tables[i] + offset[i] + v * step.access[i].stride_v;
            if (step.access[i].row) rows.push_back(p);
            else sum += *p;
        }
    }

    // The totals of a row with what lies above it.
    void total(std::vector<double>& into, const double* above, std::size_t n) const {
        into.resize(n);
        if (rows.empty()) return set_plus(into.data(), above, sum, n);
        set_sum(into.data(), above, rows[0], sum, n);
        for (std::size_t i = 1; i < rows.size(); ++i) add_row(into.data(), rows[i], n);
    }
};

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
        std::fill_n(out, step.row, INF);
        for (std::size_t v = 0; v < step.values; ++v) {
            temporary.assign(step.row, sum[v]);
            for (std::size_t i : rows)
                add_row(temporary.data(), at(i, offset) + v * stride(i), step.row);
            min_row(out, temporary.data(), step.row);
        }
    }

    const double* at(std::size_t i, const std::size_t* offset) const { return tables[i] + offset[i]; }
    std::size_t stride(std::size_t i) const { return step.access[i].stride_v; }
};

std::vector<double> step_up(const Plan& plan, const Step& step, const Values& values) {
    std::vector<double> out(plan.cells[step.output]);
    StepUp work(step, values);
    each_row(step, 0, rows_of(step),
             [&](std::size_t to, const std::size_t* offset) { work.row(&out[to], offset); });
    return out;
}

// Lowers the joint minimum of every input entry of one row by the row of totals.
void lower(const Step& step, const std::size_t* offset, std::size_t v,
           const std::vector<double>& total, Outside& joint) {
    const double low = least(total.data(), total.size());
    if (low == INF) return;
    for (std::size_t i = 0; i < step.inputs.size(); ++i) {
        double* p = joint[step.inputs[i]].data() + offset[i] + v * step.access[i].stride_v;
        if (step.access[i].row) min_row(p, total.data(), total.size());
        else *p = smaller(*p, low);
    }
}

void step_down(const Plan& plan, const Step& step, const Values& values, Outside& result) {
    std::vector<double> total;
    Rows rows(step, values);
    for (int id : step.inputs) result[id].assign(plan.cells[id], INF);
    each_row(step, 0, rows_of(step), [&](std::size_t to, const std::size_t* offset) {
        const double* above = &result[step.output][to];
        for (std::size_t v = 0; v < step.values; ++v) {
            rows.at(step, offset, v);
            if (rows.sum == INF) continue;
            rows.total(total, above, step.row);
            lower(step, offset, v, total, result);
        }
    });
    for (int id : step.inputs) {
        const double* own = values.of(id);
        for (std::size_t i = 0; i < plan.cells[id]; ++i)
            if (result[id][i] != INF) result[id][i] -= own[i];
    }
}

// The sum of the inputs at one entry.
double sum_at(const Step& step, const Values& values, const std::size_t* at, std::size_t v) {
    double sum = 0;
    for (std::size_t i = 0; i < step.inputs.size(); ++i)
        sum += values.of(step.inputs[i])[at[i] + v * step.access[i].stride_v];
    return sum;
}

int best_value(const Step& step, const Values& values, const Values* second, const std::size_t* at) {
    std::pair<double, double> low{INF, INF};
    int best = 0;
    for (std::size_t v = 0; v < step.values; ++v) {
        const double sum = sum_at(step, values, at, v);
        if (sum > low.first || sum == INF) continue;
        const std::pair<double, double> both{sum, second ? sum_at(step, *second, at, v) : 0};
        if (both < low) low = both, best = static_cast<int>(v);
    }
    return best;
}

// Which cells a best choice may pass through, and what they cost at least under other weights.
class Ties {
  public:
    Ties(const Plan& plan, const Values& first) : plan_(plan), first_(first), open_(plan.scope.size()) {
        mark(plan.last().output, 0);
        for (auto step = plan.steps.rbegin(); step != plan.steps.rend(); ++step)
            each_tie(*step, [&](std::size_t, const std::size_t* at, std::size_t v) {
                for (std::size_t i = 0; i < step->inputs.size(); ++i)
                    mark(step->inputs[i], at[i] + v * step->access[i].stride_v);
            });
    }

    void fill(Values& second) const {
        for (const Step& step : plan_.steps) {
            if (open_[step.output].empty()) continue;
            auto& out = second.tables[step.output];
            out.assign(plan_.cells[step.output], INF);
            each_tie(step, [&](std::size_t to, const std::size_t* at, std::size_t v) {
                out[to] = smaller(out[to], sum_at(step, second, at, v));
            });
        }
    }

  private:
    void mark(int table, std::size_t cell) {
        auto& cells = open_[plan_.same[table]];
        if (cells.empty()) cells.resize(plan_.cells[table]);
        cells[cell] = 1;
    }

    // Calls f(cell, offsets, v) for each open cell of the output and each v that reaches its value.
    template <class F>
    void each_tie(const Step& step, F f) const {
        const auto& open = open_[step.output];
        if (open.empty()) return;  // never reached, or the same as an earlier one
        const double* best = first_.of(step.output);
        std::vector<std::size_t> at(step.inputs.size());
        each_row(step, 0, rows_of(step), [&](std::size_t to, const std::size_t* offset) {
            for (std::size_t x = 0; x < step.row; ++x) {
                if (!open[to + x]) continue;
                for (std::size_t i = 0; i < at.size(); ++i)
                    at[i] = offset[i] + (step.access[i].row ? x : 0);
                for (std::size_t v = 0; v < step.values; ++v)
                    if (sum_at(step, first_, at.data(), v) == best[to + x]) f(to + x, at.data(), v);
            }
        });
    }

    const Plan& plan_;
    const Values& first_;
    std::vector<std::vector<char>> open_;  // of the first of equal tables
};

}  // namespace

std::vector<double> weigh(const Table& table, const Weights& weights) {
    std::vector<double> out(table.size());
    const bool plain = weights.fixed == 0 || table.fixed.empty();
    for (std::size_t i = 0; i < out.size(); ++i)  // zero times infinity is not a number
        out[i] = table.time[i] == INF ? INF : weights.time * table.time[i];
    for (std::size_t i = 0; !plain && i < out.size(); ++i) out[i] += weights.fixed * table.fixed[i];
    if (weights.limit == INF || table.transient.empty()) return out;
    for (std::size_t i = 0; i < out.size(); ++i)
        if (table.transient[i] > weights.limit) out[i] = INF;
    return out;
}

namespace {

Values weighed(const Plan& plan, const Weights& weights) {
    Values values{std::vector<std::vector<double>>(plan.scope.size()), &plan};
    values.given.resize(plan.scope.size());
    for (std::size_t id = 0; id < plan.base.size(); ++id) {
        if (plan.same[id] != static_cast<int>(id)) continue;
        const Table& table = *plan.base[id];
        const bool as_is = weights.time == 1 && (weights.fixed == 0 || table.fixed.empty()) &&
                           (weights.limit == INF || table.transient.empty());
        if (as_is) values.given[id] = table.time.data();
        else values.tables[id] = weigh(table, weights);
    }
    return values;
}

}  // namespace

Values eliminate(const Plan& plan, const Weights& weights, const Token* token) {
    Values values = weighed(plan, weights);
    for (const Step& step : plan.steps) {
        if (plan.same[step.output] != step.output) continue;
        if (token) token->check();
        values.tables[step.output] = step_up(plan, step, values);
    }
    return values;
}

Values among_ties(const Plan& plan, const Values& first, const Weights& weights) {
    Values second = weighed(plan, weights);
    Ties(plan, first).fill(second);
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

Outside outside(const Plan& plan, const Values& values, const Token* token) {
    Outside result(plan.scope.size());
    result[plan.last().output] = {0.0};
    for (auto step = plan.steps.rbegin(); step != plan.steps.rend(); ++step) {
        if (token) token->check();
        step_down(plan, *step, values, result);
    }
    return result;
}

}  // namespace topt::search
