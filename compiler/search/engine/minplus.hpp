// Variable elimination over numbers: least sums, and the least sum outside every entry.
#pragma once

#include <vector>

#include "plan.hpp"
#include "token.hpp"

namespace tensoropt::search {

// A weighted sum of the objectives, over assignments with transient memory up to `limit`.
struct Weights {
  double time = 1, fixed = 0;
  double limit = kInfinity;
};

// Values of the tables; equal tables share the values of the first.
struct Values {
  std::vector<Numbers> tables;
  const Plan* plan = nullptr;
  std::vector<const double*> given = {};  // base tables that are used unchanged
  const double* of(int table) const {
    const int first = plan->same[table];
    return tables[first].empty() ? given[first] : tables[first].data();
  }
  double total() const { return *of(plan->last().output); }
};

// Returns the values of a node or edge table under the weights.
Numbers weigh(const Table& table, const Weights& weights);

// Returns the values of the base tables of a plan.
Values weighed(const Plan& plan, const Weights& weights);

// Computes out[scope] = min over v of the sum of the inputs, for every step. Throws Stopped at the
// token's end.
Values eliminate(const Plan& plan, const Weights& weights, const Token* token = nullptr);

// Returns only the total of `eliminate`: each table is freed after its last reader.
double least_sum(const Plan& plan, const Weights& weights, const Token* token = nullptr);

// Returns the least sums under other weights, among the assignments that reach `first.total()`.
// `first` must be of whole numbers, so that ties compare equal. Throws Stopped at the token's end.
Values among_ties(const Plan& plan, const Values& first, const Weights& weights,
                  const Token* token = nullptr);

// Returns an assignment that reaches `values.total()`, and `second->total()` if given.
std::vector<int> decode(const Plan& plan, const Values& values, const Values* second = nullptr);

// Per table and entry, the least sum of everything outside that table (kInfinity if there is none).
// Of equal tables the first has the least over all places; the others are empty.
using Outside = std::vector<Numbers>;

// Selects the tables to bound: nodes and edges only, which takes less memory, or steps too.
enum class Around { Given, All };
Outside outside(const Plan& plan, Values values, Around which, const Token* token = nullptr);

}  // namespace tensoropt::search
