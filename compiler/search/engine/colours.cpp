#include "colours.hpp"

#include <unordered_map>

namespace tensoropt::search {
namespace {

// Numbers tables in the order of their first use: addresses differ from run to run.
class Labels {
 public:
  std::uint64_t of(const TableRef& table) {
    return known_.try_emplace(table.get(), known_.size() + 1).first->second;
  }

 private:
  std::unordered_map<const Table*, std::uint64_t> known_;
};

}  // namespace

std::vector<std::uint64_t> colours_of(const Model& model, int reach) {
  Labels labels;
  std::vector<std::uint64_t> colours, edges;
  for (const TableRef& node : model.nodes) colours.push_back(labels.of(node));
  for (const Edge& edge : model.edges) edges.push_back(labels.of(edge.table));
  for (int round = 0; round < reach; ++round) {
    std::vector<std::uint64_t> around(colours.size(), 0);  // sums do not depend on the order
    for (std::size_t e = 0; e < edges.size(); ++e) {
      const auto [a, b, table] = model.edges[e];
      around[a] += blend(blend(1, edges[e]), colours[b]);
      around[b] += blend(blend(2, edges[e]), colours[a]);
    }
    for (std::size_t n = 0; n < colours.size(); ++n) colours[n] = blend(colours[n], around[n]);
  }
  return colours;
}

}  // namespace tensoropt::search
