#include "order.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "colours.hpp"

namespace tensoropt::search {
namespace {

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
    while (!queue_.empty()) {
      if (share_) remove_alike(look_[most_shared()]);
      else remove(std::get<2>(*queue_.begin()));
    }
    return std::move(order_);
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

  // Returns a hash of a table for one of its variables, equal for equal tables in equal places.
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

  // Returns the variable with the fewest cells per place of the same look.
  int most_shared() const {
    std::pair<double, double> least{kInfinity, kInfinity};
    int best = -1;
    for (const auto& [cells, work, v] : queue_) {
      const double places = double(alike_.at(look_[v]).size());
      const std::pair<double, double> cost{cells / places, work / places};
      if (cost < least) least = cost, best = v;
    }
    return best;
  }

  // Removes all variables of this look except neighbours of each other. A chain of equal parts
  // becomes a chain of equal parts again, half as long.
  void remove_alike(std::uint64_t look) {
    const std::set<int> alike = alike_.at(look);
    for (int v : alike)
      if (look_[v] == look) remove(v);
  }

  // Removes a variable and joins its neighbours pairwise.
  void remove(int v) {
    order_.push_back(v);
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

  // Replaces the tables of v by the output table.
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
  std::vector<int> order_;
  std::vector<std::set<int>> near_;
  std::vector<Place> place_;
  std::set<Place> queue_;  // all variables; with `share`, one of each look
  std::vector<std::uint64_t> look_;
  std::map<std::uint64_t, std::set<int>> alike_;
  std::vector<Factor> factors_;
  std::vector<std::vector<std::size_t>> tables_of_;
  std::unordered_map<const Table*, std::uint64_t> labels_;
};

}  // namespace

std::vector<int> elimination_order(const Model& model, bool share) {
  return Orderer(model, share).order();
}

}  // namespace tensoropt::search
