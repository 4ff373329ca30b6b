// Programs of element by element arithmetic, over as many arrays as they read and write, in one go:
// a tile of each array passes through all steps while it is in the nearest cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "element.hpp"

namespace tensoropt {

enum class Arithmetic : std::int64_t { Add, Sub, Mul, Div, Sqrt };
inline constexpr std::int64_t kArithmetics = 5;

// The operands are numbers of values: first the scalars, then the arrays read, then what the steps
// make, each by its own place. Sqrt takes `a` twice.
struct Step {
  Arithmetic kind;
  std::size_t a, b;
};

// What a pass makes of its operands before it puts two sides together: `a` as it is, the product of
// `a` and `b`, or the root of `a`.
enum class Form : std::uint8_t { Value, Product, Root };

struct Side {
  Form form;
  std::size_t a, b;  // values
};

// A step, and those before it whose results nothing else reads. Sqrt takes the left side alone.
struct Pass {
  Arithmetic kind;
  Side left, right;
  std::size_t made;  // a value
};

// Arrays are float32, float16 or bfloat16, which are computed with in float32.
struct Program {
  std::size_t scalars = 0;
  std::vector<Element> reads;
  std::vector<Pass> passes;
  std::vector<std::size_t> results;  // values that are written, the scalars not among them
  std::vector<Element> writes;       // as many
  std::vector<std::size_t> ends;  // by value, the passes that are done when none reads it any more
  std::vector<std::size_t> room_of;  // by value, which tile it lies in; scalars lie in none
  std::size_t rooms = 0;

  std::size_t first_step() const { return scalars + reads.size(); }
};

// Throws `Error` for a program that is none; `given` is the list of its steps, three numbers each.
Program checked_program(std::int64_t scalars, const std::vector<std::int64_t>& reads,
                        const std::vector<std::int64_t>& given,
                        const std::vector<std::int64_t>& results,
                        const std::vector<std::int64_t>& writes);

// Runs `program` over elements `from` to `end`. An array that is written may be one that is read;
// of other memory they have nothing in common.
void run_program(const Program& program, const float* scalars, const void* const* reads,
                 void* const* writes, std::size_t from, std::size_t end);

}  // namespace tensoropt
