// Reduction of a model to some of its entries.
#include <cmath>
#include <map>
#include <tuple>

#include "model.hpp"

namespace tensoropt::search {
namespace {

Table select(const Table& table, const std::vector<int>& rows, const std::vector<int>& columns,
             std::size_t width) {
  auto pick = [&](const std::vector<double>& from) {
    std::vector<double> to;
    if (from.empty()) return to;
    to.reserve(rows.size() * columns.size());
    for (int row : rows)
      for (int column : columns) to.push_back(from[row * width + column]);
    return to;
  };
  return {pick(table.time), pick(table.fixed), pick(table.transient)};
}

// The state of `reduce`: the entries that stay, and the new number of each node.
struct Reduction {
  Model& old;
  Model next;
  std::vector<std::vector<int>> kept;
  std::vector<int> list_of;                     // node -> number of its list of kept entries
  std::vector<int> moved;                       // old node -> new node, or -1 when it was fixed
  std::vector<std::unique_ptr<Table>> changed;  // new node -> its table, once edges are added to it
  std::map<std::tuple<const Table*, std::size_t, int, int>, TableRef> selected;

  bool list(const Keep& keep) {
    std::map<std::vector<int>, int> numbers;
    kept.resize(old.nodes.size());
    for (std::size_t n = 0; n < kept.size(); ++n) {
      for (int i = 0; i < old.size(n); ++i)
        if (keep[n][i] && std::isfinite(old.nodes[n]->time[i])) kept[n].push_back(i);
      if (kept[n].empty()) return false;
      list_of.push_back(numbers.try_emplace(kept[n], int(numbers.size())).first->second);
    }
    return true;
  }

  bool keeps_all() const {
    for (std::size_t n = 0; n < kept.size(); ++n)
      if (kept[n].size() == 1 || int(kept[n].size()) < old.size(n)) return false;
    return std::isfinite(old.base.time);
  }

  // Returns the rows and columns that stay; `b` is -1 for the table of a node.
  TableRef part(const TableRef& table, int a, int b) {
    const std::size_t width = b < 0 ? 1 : old.size(b);
    if (kept[a].size() * (b < 0 ? 1 : kept[b].size()) == table->size()) return table;
    TableRef& known = selected[{table.get(), width, list_of[a], b < 0 ? -1 : list_of[b]}];
    if (!known)
      known = std::make_shared<const Table>(
          select(*table, kept[a], b < 0 ? std::vector<int>{0} : kept[b], width));
    return known;
  }

  void place_nodes() {
    next.base = old.base;
    next.choice = old.choice;
    for (std::size_t n = 0; n < kept.size(); ++n) {
      if (kept[n].size() == 1) {
        add(next.base, old.nodes[n]->at(kept[n][0]));
        next.choice[old.source[n]] = old.configs[n][kept[n][0]];
        moved.push_back(-1);
        continue;
      }
      moved.push_back(int(next.nodes.size()));
      next.nodes.push_back(part(old.nodes[n], int(n), -1));
      next.source.push_back(old.source[n]);
      auto& configs = next.configs.emplace_back();
      for (int i : kept[n]) configs.push_back(old.configs[n][i]);
    }
    changed.resize(next.nodes.size());
  }

  void place_edge(const Edge& edge) {
    TableRef table = part(edge.table, edge.a, edge.b);
    const int a = moved[edge.a], b = moved[edge.b];
    if (a >= 0 && b >= 0) {
      next.edges.push_back({a, b, std::move(table)});
    } else if (a < 0 && b < 0) {
      add(next.base, table->at(0));
    } else {
      auto& into = changed[a < 0 ? b : a];
      if (!into) into = std::make_unique<Table>(*next.nodes[a < 0 ? b : a]);
      for (std::size_t i = 0; i < table->size(); ++i) add(*into, i, table->at(i));
    }
  }

  void place_changed() {
    Interner interner;
    for (std::size_t n = 0; n < changed.size(); ++n)
      if (changed[n]) next.nodes[n] = interner.of(std::move(*changed[n]));
  }
};

}  // namespace

std::optional<Model> reduce(Model model, const Keep& keep) {
  Reduction work{model, {}, {}, {}, {}, {}, {}};
  if (!work.list(keep)) return std::nullopt;
  if (work.keeps_all()) return model;
  work.place_nodes();
  for (const Edge& edge : model.edges) work.place_edge(edge);
  work.place_changed();
  if (!std::isfinite(work.next.base.time)) return std::nullopt;
  return std::move(work.next);
}

}  // namespace tensoropt::search
