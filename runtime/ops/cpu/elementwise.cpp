#include "cpu/elementwise.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "cpu/clones.hpp"
#include "half.hpp"

namespace tensoropt {
namespace {

// Elements; a dozen tiles take a small part of the L1 cache.
constexpr std::size_t kTile = 128;

// Aligned to a cache line, as arrays of the runtime are: otherwise the widest loads and stores
// would cross two lines.
struct alignas(64) Room {
  float elements[kTile];
};

// The operands of the two sides of a pass in one tile.
struct Tiles {
  const float *left_a, *left_b, *right_a, *right_b;
};

template <Form Own>
TENSOROPT_INLINE float side(float a, float b) {
  if constexpr (Own == Form::Product) return a * b;
  else if constexpr (Own == Form::Root) return std::sqrt(a);
  else return a;
}

template <Arithmetic Kind>
TENSOROPT_INLINE float joined(float left, float right) {
  if constexpr (Kind == Arithmetic::Add) return left + right;
  else if constexpr (Kind == Arithmetic::Sub) return left - right;
  else if constexpr (Kind == Arithmetic::Mul) return left * right;
  else if constexpr (Kind == Arithmetic::Div) return left / right;
  else if constexpr (Kind == Arithmetic::Gate) return right > 0.0f ? left : 0.0f;
  else return std::sqrt(left);
}

// `made` may alias an operand.
template <Arithmetic Kind, Form Left, Form Right>
TENSOROPT_INLINE void each(const Tiles& of, float* made, std::size_t n) {
  TENSOROPT_EACH_BY_ITSELF
  for (std::size_t i = 0; i < n; ++i)
    made[i] = joined<Kind>(side<Left>(of.left_a[i], of.left_b[i]),
                           side<Right>(of.right_a[i], of.right_b[i]));
}

template <Arithmetic Kind, Form Left>
TENSOROPT_INLINE void by_right(const Pass& pass, const Tiles& of, float* made, std::size_t n) {
  switch (pass.right.form) {
    case Form::Value: return each<Kind, Left, Form::Value>(of, made, n);
    case Form::Product: return each<Kind, Left, Form::Product>(of, made, n);
    case Form::Root: return each<Kind, Left, Form::Root>(of, made, n);
  }
}

template <Arithmetic Kind>
TENSOROPT_INLINE void by_sides(const Pass& pass, const Tiles& of, float* made, std::size_t n) {
  switch (pass.left.form) {
    case Form::Value: return by_right<Kind, Form::Value>(pass, of, made, n);
    case Form::Product: return by_right<Kind, Form::Product>(pass, of, made, n);
    case Form::Root: return by_right<Kind, Form::Root>(pass, of, made, n);
  }
}

TENSOROPT_INLINE
void take(const Pass& pass, const Tiles& of, float* made, std::size_t n) {
  switch (pass.kind) {
    case Arithmetic::Add: return by_sides<Arithmetic::Add>(pass, of, made, n);
    case Arithmetic::Sub: return by_sides<Arithmetic::Sub>(pass, of, made, n);
    case Arithmetic::Mul: return by_sides<Arithmetic::Mul>(pass, of, made, n);
    case Arithmetic::Div: return by_sides<Arithmetic::Div>(pass, of, made, n);
    case Arithmetic::Sqrt: return by_sides<Arithmetic::Sqrt>(pass, of, made, n);
    case Arithmetic::Gate: return by_sides<Arithmetic::Gate>(pass, of, made, n);
    default: return;  // `checked_program` refuses other steps
  }
}

// Runs all passes over a tile: `values` has the address of each value, `made` the target of each
// pass.
TENSOROPT_CLONES
void take_all(const std::vector<Pass>& passes, const float* const* values, float* const* made,
              std::size_t n) {
  for (const auto& pass : passes) {
    const auto &left = pass.left, &right = pass.right;
    take(pass, {values[left.a], values[left.b], values[right.a], values[right.b]}, *made++, n);
  }
}

template <class Narrow>
TENSOROPT_INLINE void widen(const void* from, std::size_t at, float* to, std::size_t n) {
  const auto* narrow = static_cast<const Narrow*>(from) + at;
  for (std::size_t i = 0; i < n; ++i) to[i] = narrow[i].widen();
}

template <class Narrow>
TENSOROPT_INLINE void narrow(const float* from, void* to, std::size_t at, std::size_t n) {
  auto* held = static_cast<Narrow*>(to) + at;
  for (std::size_t i = 0; i < n; ++i) held[i] = Narrow::round(from[i]);
}

// Elements `at` to `at + n` as float32: in place, or widened into `room`.
TENSOROPT_CLONES
const float* load(Element type, const void* from, std::size_t at, float* room, std::size_t n) {
  if (type == Element::Float32) return static_cast<const float*>(from) + at;
  if (type == Element::Float16) widen<Float16>(from, at, room, n);
  else widen<BFloat16>(from, at, room, n);
  return room;
}

TENSOROPT_CLONES
void store(Element type, const float* from, void* to, std::size_t at, std::size_t n) {
  if (type == Element::Float32) std::memcpy(static_cast<float*>(to) + at, from, n * sizeof(float));
  else if (type == Element::Float16) narrow<Float16>(from, to, at, n);
  else narrow<BFloat16>(from, to, at, n);
}

// Executes a program tile by tile. Written arrays may alias read arrays: a pass writes directly
// into an array that no later pass reads; all other results are stored after the last pass.
class Machine {
 public:
  Machine(const Program& program, const float* scalars, const void* const* reads,
          void* const* writes)
      : program_(program), reads_(reads), writes_(writes), values_(program.ends.size()),
        rooms_(program.rooms + program.scalars), targets_(values_.size()),
        made_(program.passes.size()) {
    for (std::size_t i = 0; i < program.scalars; ++i) {
      auto& elements = rooms_[program.rooms + i].elements;
      std::fill_n(elements, kTile, scalars[i]);
      values_[i] = elements;
    }
    for (std::size_t i = 0; i < program.passes.size(); ++i)
      for (std::size_t result = 0; result < program.results.size(); ++result)
        if (program.results[result] == program.passes[i].made && is_free(result, i))
          targets_[program.results[result]] = static_cast<float*>(writes[result]);
  }

  void run(std::size_t at, std::size_t n) {
    for (std::size_t i = 0; i < program_.reads.size(); ++i) {
      const auto value = program_.scalars + i;
      values_[value] = load(program_.reads[i], reads_[i], at, room(value), n);
    }
    for (std::size_t i = 0; i < made_.size(); ++i) {
      const auto value = program_.passes[i].made;
      values_[value] = made_[i] = targets_[value] ? targets_[value] + at : room(value);
    }
    take_all(program_.passes, values_.data(), made_.data(), n);
    for (std::size_t i = 0; i < program_.writes.size(); ++i)
      if (targets_[program_.results[i]] != writes_[i])
        store(program_.writes[i], values_[program_.results[i]], writes_[i], at, n);
  }

 private:
  // True if the pass that computes a result may write directly to its target, because no later pass
  // reads that memory.
  bool is_free(std::size_t result, std::size_t pass) const {
    if (program_.writes[result] != Element::Float32) return false;
    for (std::size_t i = 0; i < program_.reads.size(); ++i)
      if (reads_[i] == writes_[result] && program_.ends[program_.scalars + i] > pass + 1)
        return false;
    return true;
  }

  float* room(std::size_t value) { return rooms_[program_.room_of[value]].elements; }

  const Program& program_;
  const void* const* reads_;
  void* const* writes_;
  std::vector<const float*> values_;
  std::vector<Room> rooms_;      // tiles of values, then one per scalar
  std::vector<float*> targets_;  // by value: array that its pass writes directly, or null
  std::vector<float*> made_;     // by pass: target in the current tile
};

std::vector<Element> elements(const std::vector<std::int64_t>& numbers, const char* what) {
  std::vector<Element> found;
  for (const auto number : numbers) {
    const auto type = Element(int(number));
    if (type != Element::Float32 && type != Element::Float16 && type != Element::BFloat16)
      throw Error(std::string(what) +
                  " must be float32, float16 or bfloat16, got: ONNX element type " +
                  std::to_string(number));
    found.push_back(type);
  }
  return found;
}

// By read array; one at least has the shape of the results.
std::vector<bool> flags(const std::vector<std::int64_t>& broadcast, std::size_t reads) {
  if (broadcast.size() != reads || !std::count(broadcast.begin(), broadcast.end(), 0))
    throw Error("broadcast must be " + std::to_string(reads) + " flags, one of them 0");
  return {broadcast.begin(), broadcast.end()};
}

void check_below(std::int64_t value, std::size_t from, std::size_t end, const char* what) {
  if (value < std::int64_t(from) || value >= std::int64_t(end))
    throw Error(std::string(what) + " must be values from " + std::to_string(from) + " to " +
                std::to_string(std::int64_t(end) - 1) + ", got: " + std::to_string(value));
}

std::vector<Step> steps_of(const std::vector<std::int64_t>& given, std::size_t first,
                           std::int64_t arithmetics) {
  if (given.size() % 3)
    throw Error("program must be three numbers a step, got: " + std::to_string(given.size()));
  std::vector<Step> steps;
  for (std::size_t i = 0; i < given.size(); i += 3) {
    if (given[i] < 0 || given[i] >= arithmetics)
      throw Error("a step must be of kind 0 to " + std::to_string(arithmetics - 1) +
                  ", got: " + std::to_string(given[i]));
    for (const auto operand : {given[i + 1], given[i + 2]})
      check_below(operand, 0, first + steps.size(), "operands of a step");
    steps.push_back({Arithmetic(given[i]), std::size_t(given[i + 1]), std::size_t(given[i + 2])});
  }
  return steps;
}

// Returns the number of reads of each value by steps; a result counts as two more reads.
std::vector<std::size_t> uses_of(const Program& program, const std::vector<Step>& steps) {
  std::vector<std::size_t> uses(program.first_step() + steps.size());
  for (const auto& step : steps) {
    ++uses[step.a];
    if (!is_unary(step.kind)) ++uses[step.b];
  }
  for (const auto result : program.results) uses[result] += 2;
  return uses;
}

// Fuses steps into passes: a product or root with a single reader becomes a side of that step.
// Storing it in a tile and loading it again would cost as much as computing it.
void make_passes(Program& program, const std::vector<Step>& steps) {
  const auto uses = uses_of(program, steps);
  std::vector<Side> sides;  // form in which each value is read
  for (std::size_t value = 0; value < uses.size(); ++value)
    sides.push_back({Form::Value, value, value});
  auto value = program.first_step();
  for (const auto& [kind, a, b] : steps) {
    const bool is_root = kind == Arithmetic::Sqrt, is_product = kind == Arithmetic::Mul;
    const auto left = sides[a];
    const auto right = is_unary(kind) ? Side{Form::Value, left.a, left.a} : sides[b];
    const bool is_plain = left.form == Form::Value && right.form == Form::Value;
    if (is_plain && uses[value] == 1 && (is_root || is_product))
      sides[value] = {is_root ? Form::Root : Form::Product, a, b};
    else program.passes.push_back({kind, left, right, value});
    ++value;
  }
}

// Returns the number of passes after which each value is dead.
std::vector<std::size_t> ends_of(const Program& program, std::size_t values) {
  std::vector<std::size_t> ends(values);
  std::size_t done = 0;
  for (const auto& [kind, left, right, made] : program.passes) {
    ++done;
    for (const auto operand : {left.a, left.b, right.a, right.b}) ends[operand] = done;
  }
  for (const auto result : program.results) ends[result] = done + 1;
  return ends;
}

// Assigns tiles to values by live range. One tile per value would evict the arrays from the L1
// cache.
void give_rooms(Program& program, std::size_t values) {
  std::vector<std::size_t> taken_until;  // by tile: number of passes after which it is free
  program.ends = ends_of(program, values);
  program.room_of.resize(values);
  const auto give = [&](std::size_t value, std::size_t done) {
    const auto room = std::find_if(taken_until.begin(), taken_until.end(),
                                   [done](std::size_t end) { return end <= done; });
    program.room_of[value] = std::size_t(room - taken_until.begin());
    if (room == taken_until.end()) taken_until.push_back(program.ends[value]);
    else *room = program.ends[value];
  };
  for (auto value = program.scalars; value < program.first_step(); ++value) give(value, 0);
  for (std::size_t i = 0; i < program.passes.size(); ++i) give(program.passes[i].made, i + 1);
  program.rooms = taken_until.size();
}

}  // namespace

Program checked_program(std::int64_t arithmetics, std::int64_t scalars,
                        const std::vector<std::int64_t>& reads,
                        const std::vector<std::int64_t>& broadcast,
                        const std::vector<std::int64_t>& given,
                        const std::vector<std::int64_t>& results,
                        const std::vector<std::int64_t>& writes) {
  if (scalars < 0) throw Error("scalars must be 0 or more, got: " + std::to_string(scalars));
  if (reads.empty() || writes.empty() || results.size() != writes.size())
    throw Error("expected arrays to read, and a type for each of the results, got: " +
                std::to_string(reads.size()) + " read, " + std::to_string(results.size()) +
                " results, " + std::to_string(writes.size()) + " types");
  Program program;
  program.scalars = std::size_t(scalars);
  program.reads = elements(reads, "reads");
  program.writes = elements(writes, "writes");
  program.broadcast = flags(broadcast, reads.size());
  if (arithmetics == kCpuArithmetics && std::count(broadcast.begin(), broadcast.end(), 1))
    throw Error("arrays are broadcast on GPUs only");
  const auto steps = steps_of(given, program.first_step(), arithmetics);
  const auto values = program.first_step() + steps.size();
  for (const auto result : results) {
    check_below(result, program.scalars, values, "results");
    program.results.push_back(std::size_t(result));
  }
  make_passes(program, steps);
  give_rooms(program, values);
  return program;
}

void run_program(const Program& program, const float* scalars, const void* const* reads,
                 void* const* writes, std::size_t from, std::size_t end) {
  Machine machine(program, scalars, reads, writes);
  for (auto at = from; at < end; at += kTile) machine.run(at, std::min(kTile, end - at));
}

}  // namespace tensoropt
