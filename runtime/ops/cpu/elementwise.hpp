// Fused elementwise arithmetic over several arrays: a tile of each array passes through all steps
// while it is in the L1 cache.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "element.hpp"

namespace tensoropt {

// Gate is `a` where `b` is positive, and 0 elsewhere: the gradient of a ReLU. Steps after it have a
// kernel on GPUs only: on CPUs, ONNX Runtime's own are faster than a pass of ours.
enum class Arithmetic : std::int64_t {
  Add,
  Sub,
  Mul,
  Div,
  Sqrt,
  Gate,
  Neg,
  Reciprocal,
  Exp,
  Sigmoid,
  Tanh,
  Erf,
};
inline constexpr std::int64_t kCpuArithmetics = 6, kArithmetics = 12;

inline bool is_unary(Arithmetic kind) {
  return kind == Arithmetic::Sqrt || kind > Arithmetic::Gate;
}

// Operands are numbers of values: first the scalars, then the arrays read, then the results of
// steps in order. A step with one operand has `a` for both.
struct Step {
  Arithmetic kind;
  std::size_t a, b;
};

// Operation on the operands of one side of a pass: `a` unchanged, the product of `a` and `b`, or
// the root of `a`.
enum class Form : std::uint8_t { Value, Product, Root };

struct Side {
  Form form;
  std::size_t a, b;  // values
};

// A step, fused with the earlier steps that only it reads. Unary steps use the left side only.
struct Pass {
  Arithmetic kind;
  Side left, right;
  std::size_t made;  // a value
};

// A validated program. Arrays are float32, float16 or bfloat16; arithmetic is in float32.
struct Program {
  std::size_t scalars = 0;
  std::vector<Element> reads;
  std::vector<bool> broadcast;  // by read array: smaller than the results; on GPUs only
  std::vector<Pass> passes;
  std::vector<std::size_t> results;  // values that are written; no scalars
  std::vector<Element> writes;       // types of the results
  std::vector<std::size_t> ends;     // by value: number of passes after which it is dead
  std::vector<std::size_t> room_of;  // by value: its tile; scalars have none
  std::size_t rooms = 0;

  std::size_t first_step() const { return scalars + reads.size(); }

  // The first read array that has the shape of the results.
  std::size_t whole() const {
    return std::size_t(std::find(broadcast.begin(), broadcast.end(), false) - broadcast.begin());
  }
};

// Throws `Error` if the program is invalid; `given` is the list of its steps, three numbers each,
// of the first `arithmetics` kinds.
Program checked_program(std::int64_t arithmetics, std::int64_t scalars,
                        const std::vector<std::int64_t>& reads,
                        const std::vector<std::int64_t>& broadcast,
                        const std::vector<std::int64_t>& given,
                        const std::vector<std::int64_t>& results,
                        const std::vector<std::int64_t>& writes);

// Runs `program` over elements `from` to `end`. A written array may be identical to a read array,
// but must not overlap one partially.
void run_program(const Program& program, const float* scalars, const void* const* reads,
                 void* const* writes, std::size_t from, std::size_t end);

}  // namespace tensoropt
