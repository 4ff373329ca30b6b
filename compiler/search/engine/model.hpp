// The problem in the engine: one cost table per variable and per edge.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "memory.hpp"

namespace tensoropt::search {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Relative error of sums that are not whole numbers.
inline constexpr double kRounding = 1e-9;

// Times and bytes are whole numbers in doubles (see `Intake`), so that sums are exact in any order.
// Ties stay ties, and a bound compares with a cost without a tolerance.
struct Cost {
  double time = 0, fixed = 0, transient = 0;
  double memory() const { return fixed + transient; }
};

// Costs of one factor, row-major over its scope. An infinite time forbids the entry. Memory that is
// zero everywhere is not stored.
struct Table {
  std::vector<double> time, fixed, transient;
  std::size_t size() const { return time.size(); }
  Cost at(std::size_t i) const {
    return {time[i], fixed.empty() ? 0 : fixed[i], transient.empty() ? 0 : transient[i]};
  }
  bool operator==(const Table&) const = default;
};

// Equal tables are stored once, so that tables are compared by address.
using TableRef = std::shared_ptr<const Table>;

// Continues a hash with more values.
std::uint64_t mix(std::uint64_t hash, const double* values, std::size_t size);
std::uint64_t hash_of(const Table& table);

// Stores each distinct table once.
class Interner {
 public:
  TableRef of(Table&& table, std::uint64_t hash);
  TableRef of(Table&& table) {
    const std::uint64_t hash = hash_of(table);
    return of(std::move(table), hash);
  }

 private:
  std::unordered_multimap<std::uint64_t, TableRef> known_;
};

struct Edge {
  int a, b;        // nodes
  TableRef table;  // [K_a][K_b]
};

struct Model {
  std::vector<TableRef> nodes;
  std::vector<Edge> edges;
  Cost base;                              // cost of the variables that are fixed
  std::vector<int> source;                // node -> variable of the user's problem
  std::vector<std::vector<int>> configs;  // node -> the user's option of each entry
  std::vector<int> choice;                // user's variable -> option once fixed, else -1

  int size(int node) const { return int(nodes[node]->size()); }
};

using Keep = std::vector<std::vector<char>>;

void add(Cost& into, const Cost& cost);
void add(Table& into, std::size_t at, const Cost& cost);

Table transposed(const Table& table, std::size_t rows, std::size_t columns);

// Adds up parallel edges, so that every pair of nodes has at most one edge.
void merge_parallel(Model& model);

// Drops the entries not in `keep` and absorbs nodes with one entry left; nothing if no assignment
// is left.
std::optional<Model> reduce(Model model, const Keep& keep);

// Returns the bytes of the tables, each distinct table once.
double table_bytes(const Model& model);

Keep keep_all(const Model& model);
std::size_t count(const Keep& keep);

// Drops dominated options: another option of the node is at least as good in time, static and
// transient memory for all options of the neighbours. Stops early if `enough` returns true.
using Enough = std::function<bool()>;
Keep undominated(const Model& model, const Enough& enough);

// Returns the cost of an assignment to the nodes of this model.
Cost cost_of(const Model& model, const std::vector<int>& choice);

// Returns the user's assignment (one option per user variable) for an assignment of this model.
CountedVector<int> expand(const Model& model, const std::vector<int>& choice);

}  // namespace tensoropt::search
