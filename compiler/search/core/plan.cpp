#include "plan.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>

namespace topt::search {

namespace {

using Neighbours = std::vector<std::set<int>>;

Neighbours neighbours_of(const Model& model) {
    Neighbours next(model.nodes.size());
    for (const Edge& edge : model.edges) {
        next[edge.a].insert(edge.b);
        next[edge.b].insert(edge.a);
    }
    return next;
}

double output_cells(const Model& model, const std::set<int>& scope) {
    double cells = 1;
    for (int node : scope) cells *= model.size(node);
    return cells;
}

// Removes a node and joins its neighbours pairwise.
void eliminate(Neighbours& next, int node) {
    for (int a : next[node]) {
        next[a].erase(node);
        for (int b : next[node])
            if (a != b) next[a].insert(b);
    }
}

std::vector<int> elimination_order(const Model& model) {
    Neighbours next = neighbours_of(model);
    std::vector<int> order, open(model.nodes.size());
    for (std::size_t n = 0; n < open.size(); ++n) open[n] = static_cast<int>(n);
    while (!open.empty()) {
        auto best = open.begin();
        std::pair<double, double> least{INF, INF};
        for (auto it = open.begin(); it != open.end(); ++it) {
            const double cells = output_cells(model, next[*it]);
            const std::pair<double, double> cost{cells, cells * model.size(*it)};
            if (cost < least) least = cost, best = it;
        }
        order.push_back(*best);
        eliminate(next, *best);
        open.erase(best);
    }
    return order;
}

Table transposed(const Table& table, std::size_t rows, std::size_t columns) {
    auto turn = [&](const std::vector<double>& from) {
        std::vector<double> to(from.size());
        for (std::size_t c = 0; c < columns; ++c)
            for (std::size_t r = 0; r < rows; ++r) to[c * rows + r] = from[r * columns + c];
        return to;
    };
    return {turn(table.time), turn(table.fixed), turn(table.transient)};
}

std::uint64_t hash_of(const Table& table) {
    std::uint64_t hash = table.size();
    for (const auto* values : {&table.time, &table.fixed, &table.transient})
        for (double value : *values) {
            std::uint64_t bits;
            std::memcpy(&bits, &value, sizeof bits);
            hash = (hash ^ bits) * 0x9E3779B97F4A7C15ull;
            hash ^= hash >> 29;
        }
    return hash;
}

class Planner {
  public:
    explicit Planner(const Model& model) : model_(model) {}

    Plan build() {
        const std::vector<int> order = elimination_order(model_);
        plan_.position.resize(order.size());
        for (std::size_t i = 0; i < order.size(); ++i) plan_.position[order[i]] = static_cast<int>(i);
        for (const auto& node : model_.nodes) plan_.domain.push_back(node.size());
        add_base();
        for (int var : order) add_bucket(var);
        add_step(-1, std::vector<int>(live_.begin(), live_.end()));
        return std::move(plan_);
    }

  private:
    int add_table(std::vector<int> scope) {
        std::size_t cells = 1;
        for (int node : scope) cells *= plan_.domain[node];
        const int id = static_cast<int>(plan_.scope.size());
        plan_.scope.push_back(std::move(scope));
        plan_.cells.push_back(cells);
        plan_.table_cells += static_cast<double>(cells);
        live_.insert(id);
        return id;
    }

    void add_base() {
        for (std::size_t n = 0; n < model_.nodes.size(); ++n) {
            add_table({static_cast<int>(n)});
            add_content(model_.nodes[n], 0, 1);
        }
        for (const Edge& edge : model_.edges) {
            const bool flip = plan_.position[edge.a] > plan_.position[edge.b];
            flip ? add_table({edge.b, edge.a}) : add_table({edge.a, edge.b});
            add_content(edge.table, flip, model_.size(edge.b));
        }
    }

    // Base tables are the same when their content is; only the first of them is kept.
    void add_content(const Table& table, bool flip, std::size_t columns) {
        const int id = static_cast<int>(plan_.base.size());
        plan_.flipped.push_back(flip);
        content_.push_back(&table);
        auto& candidates = by_hash_[hash_of(table)];
        for (int other : candidates)
            if (plan_.flipped[other] == plan_.flipped[id] && shape(other) == shape(id) &&
                *content_[other] == table) {
                plan_.same.push_back(other);
                plan_.base.emplace_back();
                return;
            }
        candidates.push_back(id);
        plan_.same.push_back(id);
        plan_.base.push_back(flip ? transposed(table, table.size() / columns, columns) : table);
    }

    std::pair<std::size_t, std::size_t> shape(int id) const {
        return {plan_.scope[id].size(), plan_.domain[plan_.scope[id][0]]};
    }

    bool contains(int big, int small) const {
        const auto& scope = plan_.scope[big];
        return std::all_of(plan_.scope[small].begin(), plan_.scope[small].end(), [&](int node) {
            return std::find(scope.begin(), scope.end(), node) != scope.end();
        });
    }

    // Adds each table into the smallest other one that has all its variables, then eliminates.
    void add_bucket(int var) {
        std::vector<int> bucket;
        for (int id : live_)
            if (std::find(plan_.scope[id].begin(), plan_.scope[id].end(), var) != plan_.scope[id].end())
                bucket.push_back(id);
        auto by_cells = [&](int a, int b) {
            return std::pair(plan_.cells[a], a) < std::pair(plan_.cells[b], b);
        };
        std::sort(bucket.begin(), bucket.end(), by_cells);
        for (std::size_t i = 0; i < bucket.size();) {
            std::size_t j = i + 1;
            while (j < bucket.size() && !contains(bucket[j], bucket[i])) ++j;
            if (j == bucket.size()) {
                ++i;
                continue;
            }
            bucket[j] = add_step(-1, {bucket[j], bucket[i]});
            bucket.erase(bucket.begin() + static_cast<std::ptrdiff_t>(i));
        }
        add_step(var, bucket);
    }

    std::vector<int> output_scope(const Step& step) const {
        std::set<std::pair<int, int>> sorted;
        for (int id : step.inputs)
            for (int node : plan_.scope[id])
                if (node != step.var) sorted.insert({plan_.position[node], node});
        std::vector<int> scope;
        for (auto& [position, node] : sorted) scope.push_back(node);
        return scope;
    }

    std::size_t stride(int id, int node) const {
        const auto& scope = plan_.scope[id];
        std::size_t stride = 1;
        for (std::size_t d = scope.size(); d-- > 0; stride *= plan_.domain[scope[d]])
            if (scope[d] == node) return stride;
        return 0;
    }

    // Number of innermost dimensions that each input has all of or none of.
    std::size_t row_dims(const Step& step, const std::vector<int>& scope) const {
        std::size_t dims = 0;
        for (; dims < scope.size(); ++dims) {
            const int node = scope[scope.size() - 1 - dims];
            for (int id : step.inputs)
                if ((stride(id, node) != 0) != (stride(id, scope.back()) != 0)) return dims;
        }
        return dims;
    }

    void set_loops(Step& step, const std::vector<int>& scope) const {
        const std::size_t inner = row_dims(step, scope), outer = scope.size() - inner;
        for (std::size_t d = 0; d < scope.size(); ++d)
            if (d < outer) step.outer.push_back(plan_.domain[scope[d]]);
            else step.row *= plan_.domain[scope[d]];
        for (int id : step.inputs) {
            Access access;
            access.stride_v = step.var < 0 ? 0 : stride(id, step.var);
            for (std::size_t d = 0; d < outer; ++d) access.outer.push_back(stride(id, scope[d]));
            access.row = inner > 0 && stride(id, scope.back()) != 0;
            step.access.push_back(std::move(access));
        }
    }

    int add_step(int var, std::vector<int> inputs) {
        Step step;
        step.var = var;
        step.values = var < 0 ? 1 : plan_.domain[var];
        step.inputs = std::move(inputs);
        const std::vector<int> scope = output_scope(step);
        set_loops(step, scope);
        for (int id : step.inputs) live_.erase(id);
        step.output = add_table(scope);
        plan_.same.push_back(class_of(step));
        note_size(step);
        plan_.steps.push_back(step);
        return step.output;
    }

    // Steps are the same when they do the same to the same tables.
    int class_of(const Step& step) {
        std::vector<std::size_t> key{step.values, step.row, step.outer.size()};
        key.insert(key.end(), step.outer.begin(), step.outer.end());
        for (std::size_t i = 0; i < step.inputs.size(); ++i) {
            const Access& access = step.access[i];
            key.push_back(static_cast<std::size_t>(plan_.same[step.inputs[i]]));
            key.push_back(access.stride_v);
            key.push_back(access.row);
            key.insert(key.end(), access.outer.begin(), access.outer.end());
        }
        return by_key_.try_emplace(std::move(key), step.output).first->second;
    }

    void note_size(const Step& step) {
        const double cells = static_cast<double>(plan_.cells[step.output]);
        if (cells <= widest_) return;
        widest_ = cells;
        plan_.widest.clear();
        for (int node : plan_.scope[step.output])
            plan_.widest += (plan_.widest.empty() ? "" : " x ") + std::to_string(plan_.domain[node]);
    }

    const Model& model_;
    Plan plan_;
    std::set<int> live_;
    std::vector<const Table*> content_;  // of each base table
    std::map<std::uint64_t, std::vector<int>> by_hash_;
    std::map<std::vector<std::size_t>, int> by_key_;
    double widest_ = 0;
};

}  // namespace

std::size_t offset_of(const Plan& plan, int table, const std::vector<int>& choice) {
    std::size_t at = 0;
    for (int node : plan.scope[table])
        at = at * plan.domain[node] + static_cast<std::size_t>(choice[node]);
    return at;
}

Plan make_plan(const Model& model) { return Planner(model).build(); }

}  // namespace topt::search
