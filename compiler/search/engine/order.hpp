// Which variable is eliminated next.
#pragma once

#include <vector>

#include "model.hpp"

namespace tensoropt::search {

// The nodes, each time the one whose output table is smallest. With `share`, the cells of an output
// count as divided by how many places look the same, since they are computed once.
std::vector<int> elimination_order(const Model& model, bool share);

}  // namespace tensoropt::search
