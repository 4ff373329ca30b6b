#include "plan.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

namespace topt::search {

namespace {

constexpr double kWorthSharing = 1e6;  // sums: below that, another order gains nothing

// How a table looks to one of its variables, the same for equal tables in equal places.
std::uint64_t blend(std::uint64_t a, std::uint64_t b) {
    a = (a ^ (b + 0x9E3779B97F4A7C15ull)) * 0xFF51AFD7ED558CCDull;
    return a ^ (a >> 32);
}

// Picks the variable to eliminate next: the one whose output table is smallest. With `share`, the
// cells of an output count as divided by how many places look the same, since they are computed once.
class Orderer {
  public:
    Orderer(const Model& model, bool share) : model_(model), share_(share) {
        const std::size_t n = model.nodes.size();
        near_.resize(n), place_.resize(n), look_.resize(n);
        for (std::size_t v = 0; v < n; ++v) tables_of_.emplace_back();
        if (share)
            for (std::size_t v = 0; v < n; ++v) add({int(v)}, address(model.nodes[v]));
        for (const Edge& edge : model.edges) {
            near_[edge.a].insert(edge.b);
            near_[edge.b].insert(edge.a);
            if (share) add({edge.a, edge.b}, address(edge.table));
        }
    }

    std::vector<int> order() {
        for (std::size_t v = 0; v < near_.size(); ++v) enter(int(v));
        std::vector<int> order;
        while (!queue_.empty()) {
            const int best = share_ ? most_shared() : std::get<2>(*queue_.begin());
            order.push_back(best);
            remove(best);
        }
        return order;
    }

  private:
    using Place = std::tuple<double, double, int>;

    struct Factor {
        std::vector<int> scope;
        std::uint64_t label;
    };

    std::uint64_t address(const TableRef& table) {
        return labels_.try_emplace(table.get(), labels_.size() + 1).first->second;
    }

    void add(std::vector<int> scope, std::uint64_t label) {
        for (int v : scope) tables_of_[v].push_back(factors_.size());
        factors_.push_back({std::move(scope), label});
    }

    std::uint64_t seen_from(const Factor& factor, int v) const {
        const auto at = std::find(factor.scope.begin(), factor.scope.end(), v) - factor.scope.begin();
        return blend(factor.label, std::uint64_t(at) + 1);
    }

    // The sum does not depend on the order of the tables.
    std::uint64_t look_of(int v) const {
        std::uint64_t sum = 0;
        for (std::size_t f : tables_of_[v]) sum += seen_from(factors_[f], v);
        return sum;
    }

    void enter(int v) {
        double cells = 1;
        for (int u : near_[v]) cells *= model_.size(u);
        place_[v] = {cells, cells * model_.size(v), v};
        if (share_) {
            look_[v] = look_of(v);
            alike_[look_[v]].insert(v);
            if (alike_[look_[v]].size() > 1) return;
        }
        queue_.insert(place_[v]);
    }

    void leave(int v) {
        if (!share_) {
            queue_.erase(place_[v]);
            return;
        }
        auto it = alike_.find(look_[v]);
        it->second.erase(v);
        if (queue_.erase(place_[v]) && !it->second.empty()) queue_.insert(place_[*it->second.begin()]);
        if (it->second.empty()) alike_.erase(it);
    }

    // Among the looks, the least cells per place that looks so.
    int most_shared() const {
        std::pair<double, double> least{INF, INF};
        int best = -1;
        for (const auto& [cells, work, v] : queue_) {
            const double places = double(alike_.at(look_[v]).size());
            const std::pair<double, double> cost{cells / places, work / places};
            if (cost < least) least = cost, best = v;
        }
        return best;
    }

    // Removes a variable and joins its neighbours pairwise.
    void remove(int v) {
        const std::set<int> scope = near_[v];
        leave(v);
        for (int u : scope) leave(u);
        for (int a : scope) {
            near_[a].erase(v);
            for (int b : scope)
                if (a != b) near_[a].insert(b);
        }
        if (share_) join(v, scope);
        for (int u : scope) enter(u);
    }

    // Puts the output table in the place of the tables of v.
    void join(int v, const std::set<int>& scope) {
        std::vector<std::pair<std::uint64_t, int>> sorted;
        for (int u : scope) {
            std::uint64_t key = 0;
            for (std::size_t f : tables_of_[v]) {
                const auto& in = factors_[f].scope;
                if (std::find(in.begin(), in.end(), u) != in.end())
                    key += blend(seen_from(factors_[f], v), seen_from(factors_[f], u));
            }
            sorted.emplace_back(key, u);
        }
        std::sort(sorted.begin(), sorted.end());
        std::vector<int> out;
        std::uint64_t label = look_[v];
        for (auto [key, u] : sorted) out.push_back(u), label = blend(label, key);
        const std::vector<std::size_t> gone = tables_of_[v];
        for (std::size_t f : gone)
            for (int u : factors_[f].scope) std::erase(tables_of_[u], f);
        add(std::move(out), label);
    }

    const Model& model_;
    const bool share_;
    std::vector<std::set<int>> near_;
    std::vector<Place> place_;
    std::set<Place> queue_;  // all variables; with `share`, one of each look
    std::vector<std::uint64_t> look_;
    std::map<std::uint64_t, std::set<int>> alike_;
    std::vector<Factor> factors_;
    std::vector<std::vector<std::size_t>> tables_of_;
    std::unordered_map<const Table*, std::uint64_t> labels_;
};

class Planner {
  public:
    explicit Planner(const Model& model) : model_(model) {}

    Plan build(const std::vector<int>& order) {
        plan_.position.resize(order.size());
        tables_of_.resize(order.size());
        for (std::size_t i = 0; i < order.size(); ++i) plan_.position[order[i]] = static_cast<int>(i);
        for (const auto& node : model_.nodes) plan_.domain.push_back(node->size());
        add_base();
        for (int var : order) add_bucket(var);
        std::vector<int> rest;
        for (int id = 0; id < int(plan_.scope.size()); ++id)
            if (live_[id]) rest.push_back(id);
        add_step(-1, std::move(rest));
        for (int node : widest_scope_)
            if (plan_.busiest < 0 || tables_of_[node].size() > tables_of_[plan_.busiest].size())
                plan_.busiest = node;
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
        live_.push_back(1);
        for (int node : plan_.scope[id]) tables_of_[node].push_back(id);
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

    // Base tables are the same when their content is.
    void add_content(const TableRef& table, bool flip, std::size_t columns) {
        const int id = static_cast<int>(plan_.base.size());
        plan_.flipped.push_back(flip);
        auto [it, fresh] = by_content_.try_emplace({table.get(), flip, columns}, id);
        plan_.same.push_back(it->second);
        if (!fresh) plan_.base.push_back(plan_.base[it->second]);
        else if (!flip) plan_.base.push_back(table);
        else
            plan_.base.push_back(std::make_shared<const Table>(
                transposed(*table, table->size() / columns, columns)));
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
        for (int id : tables_of_[var])
            if (live_[id]) bucket.push_back(id);
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
        for (int id : step.inputs) live_[id] = 0;
        step.output = add_table(scope);
        plan_.same.push_back(class_of(step));
        note_size(step);
        if (plan_.same.back() == step.output) plan_.distinct_work += step_work(step);
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

    // Sums to form.
    double step_work(const Step& step) const {
        return double(plan_.cells[step.output]) * double(step.values) * double(step.inputs.size());
    }

    void note_size(const Step& step) {
        const double cells = static_cast<double>(plan_.cells[step.output]);
        if (cells <= widest_) return;
        widest_ = cells;
        plan_.widest.clear();
        widest_scope_ = plan_.scope[step.output];
        for (int node : plan_.scope[step.output])
            plan_.widest += (plan_.widest.empty() ? "" : " x ") + std::to_string(plan_.domain[node]);
    }

    const Model& model_;
    Plan plan_;
    std::vector<char> live_;
    std::vector<std::vector<int>> tables_of_;  // node -> tables, some of them not live any more
    std::map<std::tuple<const Table*, bool, std::size_t>, int> by_content_;
    std::map<std::vector<std::size_t>, int> by_key_;
    double widest_ = 0;
    std::vector<int> widest_scope_;
};

}  // namespace

std::size_t offset_of(const Plan& plan, int table, const std::vector<int>& choice) {
    std::size_t at = 0;
    for (int node : plan.scope[table])
        at = at * plan.domain[node] + static_cast<std::size_t>(choice[node]);
    return at;
}

Plan make_plan(const Model& model) {
    return Planner(model).build(Orderer(model, false).order());
}

Plan make_shared_plan(const Model& model, const Plan& plain, bool always) {
    if (plain.distinct_work < kWorthSharing && !always) return plain;
    Plan shared = Planner(model).build(Orderer(model, true).order());
    return always || shared.distinct_work < plain.distinct_work ? shared : plain;
}

}  // namespace topt::search
