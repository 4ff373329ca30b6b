// Colour refinement: finds nodes with equal tables and equal surroundings.
#pragma once

#include <cstdint>
#include <vector>

#include "model.hpp"

namespace tensoropt::search {

// Continues a hash with another number.
inline std::uint64_t blend(std::uint64_t a, std::uint64_t b) {
  a = (a ^ (b + 0x9E3779B97F4A7C15ull)) * 0xFF51AFD7ED558CCDull;
  return a ^ (a >> 32);
}

// Returns a number per node, equal for nodes with equal tables up to `reach` edges away (colour
// refinement, Weisfeiler and Lehman 1968). Linear in the number of edges times `reach`.
std::vector<std::uint64_t> colours_of(const Model& model, int reach);

}  // namespace tensoropt::search
