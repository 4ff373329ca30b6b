// A model without its useless entries.
#pragma once

#include "minplus.hpp"

namespace tensoropt::search {

// Forbids the entries of an edge that are not `useful`; `table` is the edge's number.
template <class Useful>
void drop_entries(const Model& model, const Plan& plan, int table, Edge& edge,
                  const Useful& useful) {
  const std::size_t rows = model.size(edge.a), columns = model.size(edge.b);
  const Table& old = *edge.table;
  std::unique_ptr<Table> left;  // a copy, once something is dropped
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = 0; c < columns; ++c) {
      const std::size_t at = r * columns + c;
      const std::size_t in_plan = plan.flipped[table] ? c * rows + r : at;
      if (old.time[at] == kInfinity || useful(table, in_plan, old.at(at))) continue;
      if (!left) left = std::make_unique<Table>(old);
      left->time[at] = kInfinity;
    }
  if (left) edge.table = std::move(left);
}

// Returns the model with the entries for which `useful(table, place in it, cost)` is true; nothing
// if no assignment is left. Of tables that are equal in the plan, only the first is tested.
template <class Useful>
std::optional<Model> useful_part(const Model& model, const Plan& plan, const Useful& useful) {
  Model copy = model;
  Keep keep = keep_all(copy);
  const int nodes = int(copy.nodes.size());
  for (int n = 0; n < nodes; ++n)
    if (plan.same[n] != n) keep[n] = keep[plan.same[n]];
    else
      for (std::size_t i = 0; i < keep[n].size(); ++i)
        keep[n][i] = copy.nodes[n]->time[i] != kInfinity && useful(n, i, copy.nodes[n]->at(i));
  for (std::size_t e = 0; e < copy.edges.size(); ++e)
    if (const int table = int(e) + nodes; plan.same[table] != table)
      copy.edges[e].table = copy.edges[plan.same[table] - nodes].table;
    else drop_entries(model, plan, table, copy.edges[e], useful);
  return reduce(std::move(copy), keep);
}

}  // namespace tensoropt::search
