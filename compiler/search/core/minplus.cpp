#include "minplus.hpp"

#include <algorithm>
#include <optional>

#include "kernels.hpp"

namespace topt::search {

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

// The place of the only input with rows, if all rows along the last outer dimension are made of the
// same row of it. The step is then a product of matrices, with min and + for plus and times.
std::optional<std::size_t> factor_of(const Step& step) {
    std::optional<std::size_t> place;
    for (std::size_t i = 0; i < step.inputs.size(); ++i) {
        if (!step.access[i].row) continue;
        if (place || step.outer.empty() || step.access[i].outer.back() != 0) return {};
        place = i;
    }
    return place;
}

// Minimises over v, all rows along the last outer dimension at a time.
struct ProductUp {
    Step step;  // with the last outer dimension as a part of its rows
    std::size_t factor, m;
    std::vector<const double*> tables;
    std::vector<std::size_t> along;  // strides of the inputs over the last outer dimension
    std::vector<double> sum;

    ProductUp(const Step& s, std::size_t place, const Values& values)
        : step(s), factor(place), m(s.outer.back()) {
        for (int id : step.inputs) tables.push_back(values.of(id));
        for (Access& access : step.access) {
            along.push_back(access.outer.back());
            access.outer.pop_back();
        }
        step.outer.pop_back();
        step.row *= m;
    }

    void rows(double* out, const std::size_t* offset) {
        const double* a = tables[factor] + offset[factor];
        const std::size_t stride = step.access[factor].stride_v;
        if (const auto only = only_term())
            return min_product(out, a, stride, tables[*only] + offset[*only],
                               step.access[*only].stride_v, step.values, m, step.row / m);
        sum.assign(step.values * m, 0.0);
        for (std::size_t i = 0; i < tables.size(); ++i)
            if (i != factor) add_term(i, tables[i] + offset[i]);
        min_product(out, a, stride, sum.data(), m, step.values, m, step.row / m);
    }

    // The only input besides the factor, if its entries lie side by side.
    std::optional<std::size_t> only_term() const {
        const std::size_t other = 1 - factor;
        if (tables.size() == 2 && along[other] == 1) return other;
        return {};
    }

    void add_term(std::size_t i, const double* from) {
        for (std::size_t v = 0; v < step.values; ++v, from += step.access[i].stride_v)
            if (along[i] == 1) add_row(&sum[v * m], from, m);
            else for (std::size_t r = 0; r < m; ++r) sum[v * m + r] += from[r * along[i]];
    }
};

std::vector<double> step_up(const Plan& plan, const Step& step, const Values& values) {
    std::vector<double> out(plan.cells[step.output]);
    auto each = [&](const Step& loops, auto fill) {
        each_row(loops, 0, rows_of(loops),
                 [&](std::size_t to, const std::size_t* offset) { fill(&out[to], offset); });
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

// Lowers the joint minimum of every input entry by what passes through it, a row of the output at a time.
struct StepDown {
    const Step& step;
    std::vector<const double*> tables;
    std::vector<double*> joint;
    std::vector<std::size_t> rows, singles;  // inputs that have the row's dimensions, and that have not
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
        if (least(above, step.row) == INF) return;
        for (std::size_t v = 0; v < step.values; ++v) {
            double sum = 0;
            for (std::size_t i : singles) sum += tables[i][at(i, offset, v)];
            if (sum == INF) continue;
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

void step_down(const Plan& plan, const Step& step, const Values& values, Outside& result) {
    StepDown work(plan, step, values, result);
    const double* above = result[step.output].data();
    each_row(step, 0, rows_of(step),
             [&](std::size_t to, const std::size_t* offset) { work.row(above + to, offset); });
}

// From the least totals through the entries of a table to what lies outside it.
void take_off(std::vector<double>& total, const double* own) {
    for (std::size_t i = 0; i < total.size(); ++i)
        if (total[i] != INF) total[i] -= own[i];
}

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

Values eliminate(const Plan& plan, const Weights& weights, const Token* token) {
    Values values = weighed(plan, weights);
    for (const Step& step : plan.steps) {
        if (plan.same[step.output] != step.output) continue;
        if (token) token->check();
        values.tables[step.output] = step_up(plan, step, values);
    }
    return values;
}

Outside outside(const Plan& plan, const Values& values, const Token* token) {
    Outside result(plan.scope.size());
    for (std::size_t id = 0; id < result.size(); ++id)
        if (plan.same[id] == int(id)) result[id].assign(plan.cells[id], INF);
    result[plan.last().output] = {values.total()};
    // Whatever reads one of equal tables comes after the first of them.
    for (auto step = plan.steps.rbegin(); step != plan.steps.rend(); ++step) {
        if (plan.same[step->output] != step->output) continue;
        if (token) token->check();
        take_off(result[step->output], values.of(step->output));
        step_down(plan, *step, values, result);
    }
    for (std::size_t id = 0; id < plan.base.size(); ++id) take_off(result[id], values.of(int(id)));
    return result;
}

}  // namespace topt::search
