// The order in which variables are eliminated.
#pragma once

#include <vector>

#include "model.hpp"

namespace tensoropt::search {

// Returns the nodes in order of elimination: the node with the smallest output table comes next.
// With `share`, the cells of an output are divided by the number of equal places, which are
// computed once.
std::vector<int> elimination_order(const Model& model, bool share);

}  // namespace tensoropt::search
