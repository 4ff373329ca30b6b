// Points between two others, combined from the options of known points.
#pragma once

#include <vector>

#include "refine.hpp"

namespace tensoropt::search {

// Returns points in the box among the assignments that take every option from one of `points`. The
// effort is small: points may be missing, also at the token's end.
std::vector<Solution> search_mixed(const Model& model, const std::vector<const Solution*>& points,
                                   const Box& box, const Token& token);

}  // namespace tensoropt::search
