// Inputs and outputs of the collectives.
#pragma once

#include "collective.hpp"

namespace tensoropt {

// (x, token) -> (y, token). A Send has no y, a Recv no x.
struct Signature {
  bool has_x, has_y;

  constexpr std::size_t inputs() const { return has_x + 1; }
  constexpr std::size_t outputs() const { return has_y + 1; }
  constexpr std::size_t token_in() const { return has_x; }
  constexpr std::size_t token_out() const { return has_y; }
};

constexpr Signature signature(Kind kind) { return {kind != Kind::Recv, kind != Kind::Send}; }

}  // namespace tensoropt
