// Variable elimination over numbers: smallest sums, and what every entry costs at best.
#pragma once

#include <vector>

#include "plan.hpp"
#include "token.hpp"

namespace tensoropt::search {

// A weighted sum of the objectives, over the choices whose transient memory is at most `limit`.
struct Weights {
  double time = 1, fixed = 0;
  double limit = kInfinity;
};

// Values of the tables; tables that are the same share the first one's.
struct Values {
  std::vector<Numbers> tables;
  const Plan* plan = nullptr;
  std::vector<const double*> given = {};  // values of base tables that are used as they are
  const double* of(int table) const {
    const int first = plan->same[table];
    return tables[first].empty() ? given[first] : tables[first].data();
  }
  double total() const { return *of(plan->last().output); }
};

// The values of the node and edge tables under the weights.
Numbers weigh(const Table& table, const Weights& weights);

// The values of the base tables of a plan.
Values weighed(const Plan& plan, const Weights& weights);

// out[scope] = min over v of the sum of the inputs, for every step. Throws Stopped at the token's
// end.
Values eliminate(const Plan& plan, const Weights& weights, const Token* token = nullptr);

// The total of `eliminate` alone: a table is needed only until the last step that reads it.
double least_sum(const Plan& plan, const Weights& weights, const Token* token = nullptr);

// Among the choices that reach `first.total()`, the least sums under other weights. `first` must be
// of whole numbers, so that equal sums are equal. Throws Stopped at the token's end.
Values among_ties(const Plan& plan, const Values& first, const Weights& weights,
                  const Token* token = nullptr);

// A choice (configuration per node) that reaches `values.total()`, and `second->total()` if given.
std::vector<int> decode(const Plan& plan, const Values& values, const Values* second = nullptr);

// Per table and entry, the smallest sum of everything outside that table (kInfinity when there is
// none). Of equal tables the first has it, the least over all places; the others have nothing.
using Outside = std::vector<Numbers>;

// Of which tables: of the nodes and edges alone, which takes less memory, or of every step's too.
enum class Around { Given, All };
Outside outside(const Plan& plan, Values values, Around which, const Token* token = nullptr);

}  // namespace tensoropt::search
