// CUDA source of programs of elementwise arithmetic.
#pragma once

#include <string>

#include "cpu/elementwise.hpp"

namespace tensoropt {

// Elements that a thread of the kernel computes, and threads of a block.
inline constexpr unsigned kElementsPerThread = 4, kThreadsPerBlock = 256;

// The kernel `elementwise` of one piece, from its structure `Arguments`, which has the addresses of
// the scalars, of the arrays that are read and of those that are written, the number of elements,
// and for each broadcast array a divisor and a modulus, 8 bytes each. It needs no header, and is
// C++ too, except for names of CUDA. Written arrays may be identical to read arrays.
std::string kernel_source(const Program& program);

}  // namespace tensoropt
