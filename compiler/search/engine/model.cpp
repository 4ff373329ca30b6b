#include "model.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

namespace tensoropt::search {

void add(Cost& into, const Cost& cost) {
  into.time += cost.time;
  into.fixed += cost.fixed;
  into.transient = std::max(into.transient, cost.transient);
}

void add(Table& into, std::size_t at, const Cost& cost) {
  into.time[at] += cost.time;
  if (cost.fixed != 0) {
    into.fixed.resize(into.size(), 0);
    into.fixed[at] += cost.fixed;
  }
  if (cost.transient != 0) {
    into.transient.resize(into.size(), 0);
    into.transient[at] = std::max(into.transient[at], cost.transient);
  }
}

// Copies square by square, so that reads and writes stay in the cache.
Table transposed(const Table& table, std::size_t rows, std::size_t columns) {
  constexpr std::size_t kSide = 16;
  auto turn = [&](const std::vector<double>& from) {
    std::vector<double> to(from.size());
    if (from.empty()) return to;
    for (std::size_t r0 = 0; r0 < rows; r0 += kSide)
      for (std::size_t c0 = 0; c0 < columns; c0 += kSide)
        for (std::size_t c = c0; c < std::min(c0 + kSide, columns); ++c)
          for (std::size_t r = r0; r < std::min(r0 + kSide, rows); ++r)
            to[c * rows + r] = from[r * columns + c];
    return to;
  };
  return {turn(table.time), turn(table.fixed), turn(table.transient)};
}

std::uint64_t mix(std::uint64_t hash, const double* values, std::size_t size) {
  constexpr std::uint64_t kFactor = 0x9E3779B97F4A7C15ull;
  std::uint64_t lane[4] = {hash, hash ^ 1, hash ^ 2, hash ^ 3}, bits[4];
  std::size_t i = 0;
  for (; i + 4 <= size; i += 4) {  // the multiplications of four lanes overlap
    std::memcpy(bits, &values[i], sizeof bits);
    for (int l = 0; l < 4; ++l) {
      lane[l] = (lane[l] ^ bits[l]) * kFactor;
      lane[l] ^= lane[l] >> 29;
    }
  }
  for (; i < size; ++i) {
    std::memcpy(bits, &values[i], sizeof bits[0]);
    lane[0] = (lane[0] ^ bits[0]) * kFactor;
    lane[0] ^= lane[0] >> 29;
  }
  for (int l = 1; l < 4; ++l) lane[0] = (lane[0] ^ (lane[l] >> 7)) * kFactor + lane[l];
  return lane[0] + size;
}

std::uint64_t hash_of(const Table& table) {
  std::uint64_t hash = 0;
  for (const auto* part : {&table.time, &table.fixed, &table.transient})
    hash = mix(hash, part->data(), part->size());
  return hash;
}

TableRef Interner::of(Table&& table, std::uint64_t hash) {
  auto [first, last] = known_.equal_range(hash);
  for (; first != last; ++first)
    if (*first->second == table) return first->second;
  auto kept = std::make_shared<const Table>(std::move(table));
  known_.emplace(hash, kept);
  return kept;
}

void merge_parallel(Model& model) {
  std::map<std::pair<int, int>, std::vector<std::size_t>> groups;
  for (std::size_t e = 0; e < model.edges.size(); ++e)
    groups[std::minmax(model.edges[e].a, model.edges[e].b)].push_back(e);
  if (groups.size() == model.edges.size()) return;
  using Key = std::pair<int, std::vector<std::pair<const Table*, bool>>>;  // with the count of rows
  std::map<Key, TableRef> sums;
  std::vector<Edge> merged;
  for (const auto& [ends, group] : groups) {
    const Edge& first = model.edges[group[0]];
    merged.push_back(first);
    if (group.size() == 1) continue;
    const std::size_t rows = model.size(first.a), columns = model.size(first.b);
    Key whole{int(rows), {}};
    auto& key = whole.second;
    for (std::size_t e : group)
      key.emplace_back(model.edges[e].table.get(), model.edges[e].a != first.a);
    TableRef& sum = sums[whole];
    if (!sum) {
      Table total = *first.table;
      for (std::size_t k = 1; k < key.size(); ++k)
        for (std::size_t i = 0; i < total.size(); ++i)
          add(total, i, key[k].first->at(key[k].second ? i % columns * rows + i / columns : i));
      sum = std::make_shared<const Table>(std::move(total));
    }
    merged.back().table = sum;
  }
  model.edges = std::move(merged);
}

Keep keep_all(const Model& model) {
  Keep keep;
  for (const auto& node : model.nodes) keep.emplace_back(node->size(), 1);
  return keep;
}

std::size_t count(const Keep& keep) {
  std::size_t total = 0;
  for (const auto& entries : keep) total += std::count(entries.begin(), entries.end(), 1);
  return total;
}

Cost cost_of(const Model& model, const std::vector<int>& choice) {
  Cost total = model.base;
  for (std::size_t n = 0; n < model.nodes.size(); ++n) add(total, model.nodes[n]->at(choice[n]));
  for (const Edge& edge : model.edges)
    add(total, edge.table->at(std::size_t(choice[edge.a]) * model.size(edge.b) + choice[edge.b]));
  return total;
}

double table_bytes(const Model& model) {
  std::set<const Table*> distinct;
  for (const TableRef& node : model.nodes) distinct.insert(node.get());
  for (const Edge& edge : model.edges) distinct.insert(edge.table.get());
  std::size_t numbers = 0;
  for (const Table* table : distinct)
    numbers += table->time.size() + table->fixed.size() + table->transient.size();
  return double(numbers * sizeof(double));
}

CountedVector<int> expand(const Model& model, const std::vector<int>& choice) {
  CountedVector<int> full(model.choice.begin(), model.choice.end());
  for (std::size_t n = 0; n < model.nodes.size(); ++n)
    full[model.source[n]] = model.configs[n][choice[n]];
  return full;
}

}  // namespace tensoropt::search
