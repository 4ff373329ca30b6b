#include "plan.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "colours.hpp"
#include "order.hpp"

namespace tensoropt::search {
namespace {

// Edges: lists are shared if all is equal up to here. Ablation: reach.
constexpr int kReach = 4;

class Planner {
  using Looks = std::pair<std::uint64_t, std::uint64_t>;  // colours of both ends of an edge

 public:
  // Tables are shared only between nodes of the same colours.
  Planner(const Model& model, std::vector<std::uint64_t> colours)
      : model_(model), colours_(std::move(colours)) {}

  Plan build(const std::vector<int>& order) {
    plan_.position.resize(order.size());
    tables_of_.resize(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) plan_.position[order[i]] = int(i);
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
    return std::move(plan_);  // without its base tables
  }

 private:
  int add_table(std::vector<int> scope) {
    std::size_t cells = 1;
    for (int node : scope) cells *= plan_.domain[node];
    const int id = int(plan_.scope.size());
    plan_.scope.push_back(std::move(scope));
    plan_.cells.push_back(cells);
    live_.push_back(1);
    for (int node : plan_.scope[id]) tables_of_[node].push_back(id);
    return id;
  }

  void add_base() {
    for (std::size_t n = 0; n < model_.nodes.size(); ++n) {
      add_table({int(n)});
      add_content(model_.nodes[n], false, 1, {colours_[n], 0});
    }
    for (const Edge& edge : model_.edges) {
      const bool flip = plan_.position[edge.a] > plan_.position[edge.b];
      flip ? add_table({edge.b, edge.a}) : add_table({edge.a, edge.b});
      add_content(edge.table, flip, model_.size(edge.b), {colours_[edge.a], colours_[edge.b]});
    }
  }

  // Base tables are shared if their contents and the colours of their ends are equal.
  void add_content(const TableRef& table, bool flip, std::size_t columns, Looks ends) {
    const int id = int(plan_.flipped.size());
    plan_.flipped.push_back(flip);
    add_class(by_content_.try_emplace({table.get(), flip, columns, ends}, id).first->second);
  }

  void add_class(int first) {
    const std::size_t id = plan_.same.size();
    plan_.same.push_back(first);
    if (first == int(id)) plan_.table_cells += double(plan_.cells[id]);
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
      bucket.erase(bucket.begin() + std::ptrdiff_t(i));
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

  // Returns the number of innermost dimensions that each input has all or none of.
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
    add_class(class_of(step));
    note_size(step);
    if (plan_.same.back() == step.output) plan_.distinct_work += step_work(step);
    plan_.steps.push_back(step);
    return step.output;
  }

  // Steps are shared if they do the same to the same tables.
  int class_of(const Step& step) {
    std::vector<std::size_t> key{step.values, step.row, step.outer.size()};
    key.insert(key.end(), step.outer.begin(), step.outer.end());
    for (std::size_t i = 0; i < step.inputs.size(); ++i) {
      const Access& access = step.access[i];
      key.push_back(std::size_t(plan_.same[step.inputs[i]]));
      key.push_back(access.stride_v);
      key.push_back(access.row);
      key.insert(key.end(), access.outer.begin(), access.outer.end());
    }
    return by_key_.try_emplace(std::move(key), step.output).first->second;
  }

  // Returns the number of sums to form.
  double step_work(const Step& step) const {
    return double(plan_.cells[step.output]) * double(step.values) * double(step.inputs.size());
  }

  void note_size(const Step& step) {
    const double cells = double(plan_.cells[step.output]);
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
  std::vector<std::vector<int>> tables_of_;  // node -> tables, some no longer live
  const std::vector<std::uint64_t> colours_;
  std::map<std::tuple<const Table*, bool, std::size_t, Looks>, int> by_content_;
  std::map<std::vector<std::size_t>, int> by_key_;
  double widest_ = 0;
  std::vector<int> widest_scope_;
};

// Transposes of edge tables, by the table and its number of columns.
using Transposes = std::map<std::pair<const Table*, std::size_t>, TableRef>;

// Fills in the base tables, transposed if they are flipped.
Plan with_base(const Model& model, Plan plan, Transposes known) {
  plan.base = model.nodes;
  for (const Edge& edge : model.edges) {
    const std::size_t columns = model.size(edge.b);
    if (!plan.flipped[plan.base.size()]) {
      plan.base.push_back(edge.table);
      continue;
    }
    TableRef& turned = known[{edge.table.get(), columns}];
    if (!turned)
      turned = std::make_shared<const Table>(transposed(*edge.table, model.size(edge.a), columns));
    plan.base.push_back(turned);
  }
  return plan;
}

Transposes transposes_of(const Model& model, const Plan& plan) {
  Transposes known;
  std::size_t id = model.nodes.size();
  for (const Edge& edge : model.edges) {
    if (plan.flipped[id]) known[{edge.table.get(), model.size(edge.b)}] = plan.base[id];
    ++id;
  }
  return known;
}

// One colour for all nodes: numbers do not depend on a table's surroundings.
std::vector<std::uint64_t> nowhere(const Model& model) {
  return std::vector<std::uint64_t>(model.nodes.size(), 0);
}

// Plans for numbers in this order, or in an order that meets more equal parts.
Plan shared(const Model& model, const std::vector<int>& order, bool always) {
  Plan best = Planner(model, nowhere(model)).build(order);
  if (best.distinct_work >= kWorthwhile || always) {
    Plan other = Planner(model, nowhere(model)).build(elimination_order(model, true));
    if (always || other.distinct_work < best.distinct_work) best = std::move(other);
  }
  return best;
}

}  // namespace

std::size_t offset_of(const Plan& plan, int table, const std::vector<int>& choice) {
  std::size_t at = 0;
  for (int node : plan.scope[table]) at = at * plan.domain[node] + std::size_t(choice[node]);
  return at;
}

Plan make_plan(const Model& model) {
  const std::vector<std::uint64_t> colours = colours_of(model, kReach);
  Plan best = Planner(model, colours).build(elimination_order(model, false));
  if (2 * std::set(colours.begin(), colours.end()).size() <= colours.size()) {  // much is equal
    Plan shared = Planner(model, colours).build(elimination_order(model, true));
    if (shared.distinct_work < best.distinct_work) best = std::move(shared);
  }
  return with_base(model, std::move(best), {});
}

Plan make_shared_plan(const Model& model, const Plan& lists, bool always_share) {
  std::vector<int> order(model.nodes.size());
  for (std::size_t v = 0; v < order.size(); ++v) order[lists.position[v]] = int(v);
  return with_base(model, shared(model, order, always_share), transposes_of(model, lists));
}

Plan make_number_plan(const Model& model, bool always_share) {
  return with_base(model, shared(model, elimination_order(model, false), always_share), {});
}

Plan make_ordered_plan(const Model& model, const std::vector<int>& order) {
  return with_base(model, Planner(model, nowhere(model)).build(order), {});
}

}  // namespace tensoropt::search
