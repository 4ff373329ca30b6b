// The order in which variables are eliminated, and the tables that result.
#pragma once

#include <string>
#include <vector>

#include "model.hpp"

namespace tensoropt::search {

// The strides of one input of a step over the step's loops.
struct Access {
  std::size_t stride_v = 0;        // step from one entry of the eliminated variable to the next
  std::vector<std::size_t> outer;  // strides over the outer dimensions of the output
  bool row = false;                // whether it has the innermost dimensions (else one value)
};

// output[scope] = combine over v of the sum of the inputs. With var < 0 nothing is eliminated: the
// step only adds up tables (a table into a larger scope, or the separate parts).
struct Step {
  int var = -1;
  std::size_t values = 1;  // entries of the eliminated variable
  std::vector<int> inputs;
  int output = 0;
  std::vector<std::size_t> outer;  // sizes of the outer dimensions of the output
  std::size_t row = 1;             // entries of its innermost dimensions, contiguous in all inputs
  std::vector<Access> access;      // one per input
};

// Sums of an elimination for which another pass over it pays: about a millisecond.
// Ablation: worthwhile.
inline constexpr double kWorthwhile = 1e6;
// A smaller model is used if it has at most this share of the work or entries.
// Ablation: smaller.
inline constexpr double kSmaller = 0.9;

// Tables are numbered: nodes, edges, then one per step. Their dimensions are in order of
// elimination. So the eliminated variable is the first dimension of each input, and rows are
// contiguous without a copy.
struct Plan {
  std::vector<int> position;            // node -> place in the order of elimination
  std::vector<std::size_t> domain;      // node -> its number of options
  std::vector<std::vector<int>> scope;  // table -> nodes, in order of elimination
  std::vector<std::size_t> cells;       // table -> its size
  std::vector<TableRef> base;           // node and edge tables, transposed as the scope requires
  std::vector<char> flipped;            // base table -> whether it is the transpose of the model's
  std::vector<Step> steps;              // the last one has the result, a single cell
  std::vector<int> same;                // table -> the first table that is computed as one with it

  double distinct_work = 0;  // sums to form over numbers, equal steps once
  double table_cells = 0;    // cells of all tables together, equal ones once
  std::string widest;        // the widest table in words, for messages
  int busiest = -1;          // the node of the widest table that is in most tables
  const Step& last() const { return steps.back(); }
};

// Makes a plan for lists: always eliminates the variable with the smallest output table. If many
// tables are equal, it also tries an order that meets more equal parts, and takes the cheaper one.
// Tables are shared if their content and their surroundings are equal, so that the same entries are
// useful.
Plan make_plan(const Model& model);

// Makes a plan for numbers: tables of equal content are shared wherever they are. Eliminates in the
// order of `lists`, or in an order that meets more equal parts. The second is used if it is less
// work or `always_share` is set (for tests).
Plan make_shared_plan(const Model& model, const Plan& lists, bool always_share);

// Makes a plan for numbers without a plan for lists.
Plan make_number_plan(const Model& model, bool always_share);

// Makes a plan for numbers in a given order of the nodes.
Plan make_ordered_plan(const Model& model, const std::vector<int>& order);

// Calls f(output offset, offset per input) for each row of the output; offsets exclude v.
template <class F>
void each_row(const Step& step, std::size_t begin, std::size_t end, F f) {
  const std::size_t dims = step.outer.size(), inputs = step.inputs.size();
  std::vector<std::size_t> digit(dims), at(inputs, 0);
  std::size_t rest = begin;
  for (std::size_t d = dims; d-- > 0; rest /= step.outer[d]) {
    digit[d] = rest % step.outer[d];
    for (std::size_t i = 0; i < inputs; ++i) at[i] += digit[d] * step.access[i].outer[d];
  }
  for (std::size_t n = begin; n < end; ++n) {
    f(n * step.row, at.data());
    for (std::size_t d = dims; d-- > 0;) {
      const bool wraps = ++digit[d] == step.outer[d];
      const std::size_t moved = wraps ? step.outer[d] - 1 : 1;
      for (std::size_t i = 0; i < inputs; ++i) {
        const std::size_t stride = step.access[i].outer[d] * moved;
        at[i] = wraps ? at[i] - stride : at[i] + stride;
      }
      if (!wraps) break;
      digit[d] = 0;
    }
  }
}

// Returns the cell of a table that an assignment selects.
std::size_t offset_of(const Plan& plan, int table, const std::vector<int>& choice);

inline std::size_t rows_of(const Step& step) {
  std::size_t rows = 1;
  for (std::size_t size : step.outer) rows *= size;
  return rows;
}

}  // namespace tensoropt::search
