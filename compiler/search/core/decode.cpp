// From values back to choices.
#include <algorithm>
#include <utility>

#include "minplus.hpp"

namespace topt::search {

namespace {

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
                out[to] = std::min(out[to], sum_at(step, second, at, v));
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

}  // namespace topt::search
