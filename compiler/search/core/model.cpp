#include "model.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace topt::search {

void add(Cost& into, const Cost& cost) {
    into.time += cost.time;
    into.fixed += cost.fixed;
    into.transient = std::max(into.transient, cost.transient);
}

void add(Table& into, std::size_t at, const Cost& cost) {
    into.time[at] += cost.time;
    into.fixed[at] += cost.fixed;
    into.transient[at] = std::max(into.transient[at], cost.transient);
}

namespace {

// Calls f on every table of the model.
template <class F>
void each_table(Model& model, F f) {
    for (auto& node : model.nodes) f(node);
    for (auto& edge : model.edges) f(edge.table);
}

double largest_finite(const std::vector<double>& values) {
    double top = 0;
    for (double value : values)
        if (std::isfinite(value)) top = std::max(top, value);
    return top;
}

// The power of two that makes `total` come out just below 2^52, so that sums stay whole.
double unit_for(double total) {
    if (!(total > 0)) return 1;
    int exponent;
    std::frexp(total, &exponent);
    return std::ldexp(1.0, exponent - 52);
}

// Adding 2^52 to a number below it leaves no room for a fraction.
void round_to(std::vector<double>& values, double unit) {
    for (double& value : values)
        if (std::isfinite(value)) value = value * (1 / unit) + 0x1p52 - 0x1p52;
}

}  // namespace

Scale quantise(Model& model) {
    double time = 0, fixed = 0, transient = 0;
    each_table(model, [&](Table& table) {
        time += largest_finite(table.time);
        fixed += largest_finite(table.fixed);
        transient = std::max(transient, largest_finite(table.transient));
    });
    const Scale scale{unit_for(time), unit_for(fixed + transient)};
    each_table(model, [&](Table& table) {
        round_to(table.time, scale.time);
        round_to(table.fixed, scale.memory);
        round_to(table.transient, scale.memory);
    });
    return scale;
}

void merge_parallel(Model& model) {
    std::map<std::pair<int, int>, std::size_t> seen;
    std::vector<Edge> merged;
    for (Edge& edge : model.edges) {
        auto [it, fresh] = seen.try_emplace({edge.a, edge.b}, merged.size());
        if (fresh) {
            merged.push_back(std::move(edge));
            continue;
        }
        for (std::size_t i = 0; i < edge.table.size(); ++i)
            add(merged[it->second].table, i, edge.table.at(i));
    }
    model.edges = std::move(merged);
}

Keep keep_all(const Model& model) {
    Keep keep;
    for (const auto& node : model.nodes) keep.emplace_back(node.size(), 1);
    return keep;
}

std::size_t count(const Keep& keep) {
    std::size_t total = 0;
    for (const auto& entries : keep) total += std::count(entries.begin(), entries.end(), 1);
    return total;
}

namespace {

Table select(Table&& table, const std::vector<int>& rows, const std::vector<int>& columns,
             std::size_t width) {
    if (rows.size() * columns.size() == table.size()) return std::move(table);
    auto pick = [&](const std::vector<double>& from) {
        std::vector<double> to;
        to.reserve(rows.size() * columns.size());
        for (int row : rows)
            for (int column : columns) to.push_back(from[row * width + column]);
        return to;
    };
    return {pick(table.time), pick(table.fixed), pick(table.transient)};
}

// Work of `reduce`: which entries stay and where each node went.
struct Reduction {
    Model& old;
    Model next;
    std::vector<std::vector<int>> kept;
    std::vector<int> moved;  // old node -> new node, or -1 when it was fixed

    bool list(const Keep& keep) {
        kept.resize(old.nodes.size());
        for (std::size_t n = 0; n < kept.size(); ++n) {
            for (int i = 0; i < old.size(n); ++i)
                if (keep[n][i] && std::isfinite(old.nodes[n].time[i])) kept[n].push_back(i);
            if (kept[n].empty()) return false;
        }
        return true;
    }

    void place_nodes() {
        next.base = old.base;
        next.choice = old.choice;
        for (std::size_t n = 0; n < kept.size(); ++n) {
            if (kept[n].size() == 1) {
                add(next.base, old.nodes[n].at(kept[n][0]));
                next.choice[old.source[n]] = old.configs[n][kept[n][0]];
                moved.push_back(-1);
                continue;
            }
            moved.push_back(static_cast<int>(next.nodes.size()));
            next.nodes.push_back(select(std::move(old.nodes[n]), kept[n], {0}, 1));
            next.source.push_back(old.source[n]);
            auto& configs = next.configs.emplace_back();
            for (int i : kept[n]) configs.push_back(old.configs[n][i]);
        }
    }

    void place_edge(Edge& edge, const std::vector<std::size_t>& sizes) {
        Table table = select(std::move(edge.table), kept[edge.a], kept[edge.b], sizes[edge.b]);
        const int a = moved[edge.a], b = moved[edge.b];
        if (a >= 0 && b >= 0) {
            next.edges.push_back({a, b, std::move(table)});
        } else if (a < 0 && b < 0) {
            add(next.base, table.at(0));
        } else {
            for (std::size_t i = 0; i < table.size(); ++i)
                add(next.nodes[a < 0 ? b : a], i, table.at(i));
        }
    }
};

}  // namespace

std::optional<Model> reduce(Model model, const Keep& keep) {
    Reduction work{model, {}, {}, {}};
    if (!work.list(keep)) return std::nullopt;
    std::vector<std::size_t> sizes;
    for (const auto& node : model.nodes) sizes.push_back(node.size());
    work.place_nodes();
    for (Edge& edge : model.edges) work.place_edge(edge, sizes);
    if (!std::isfinite(work.next.base.time)) return std::nullopt;
    return std::move(work.next);
}

Cost cost_of(const Model& model, const std::vector<int>& choice) {
    Cost total = model.base;
    for (std::size_t n = 0; n < model.nodes.size(); ++n) add(total, model.nodes[n].at(choice[n]));
    for (const Edge& edge : model.edges)
        add(total, edge.table.at(std::size_t(choice[edge.a]) * model.size(edge.b) + choice[edge.b]));
    return total;
}

std::vector<int> expand(const Model& model, const std::vector<int>& choice) {
    std::vector<int> full = model.choice;
    for (std::size_t n = 0; n < model.nodes.size(); ++n)
        full[model.source[n]] = model.configs[n][choice[n]];
    return full;
}

}  // namespace topt::search
