// Points between two others, made of the configurations of points that are known.
#pragma once

#include <vector>

#include "refine.hpp"

namespace tensoropt::search {

// Points in the box among the choices that take every configuration from one of `points`. A small
// effort: none may be found though there are some, also at the token's end.
std::vector<Solution> search_mixed(const Model& model, const std::vector<const Solution*>& points,
                                   const Box& box, const Token& token);

}  // namespace tensoropt::search
