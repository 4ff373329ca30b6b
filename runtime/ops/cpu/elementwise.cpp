#include "cpu/elementwise.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "cpu/clones.hpp"
#include "half.hpp"

namespace tensoropt {
namespace {

// Elements: a dozen of tiles are a small part of the nearest cache.
constexpr std::size_t kTile = 128;

// A value of one tile: an array, or one number for all of it.
struct Operand {
  const float* data;
  bool is_scalar;
};

template <class Formula>
TENSOROPT_INLINE void each(Formula formula, Operand a, Operand b, float* result, std::size_t n) {
  const float first = *a.data, second = *b.data;
  if (a.is_scalar && b.is_scalar) std::fill_n(result, n, formula(first, second));
  else if (a.is_scalar)
    for (std::size_t i = 0; i < n; ++i) result[i] = formula(first, b.data[i]);
  else if (b.is_scalar)
    for (std::size_t i = 0; i < n; ++i) result[i] = formula(a.data[i], second);
  else
    for (std::size_t i = 0; i < n; ++i) result[i] = formula(a.data[i], b.data[i]);
}

TENSOROPT_CLONES
void take(Arithmetic kind, Operand a, Operand b, float* __restrict result, std::size_t n) {
  switch (kind) {
    case Arithmetic::Add: return each([](float x, float y) { return x + y; }, a, b, result, n);
    case Arithmetic::Sub: return each([](float x, float y) { return x - y; }, a, b, result, n);
    case Arithmetic::Mul: return each([](float x, float y) { return x * y; }, a, b, result, n);
    case Arithmetic::Div: return each([](float x, float y) { return x / y; }, a, b, result, n);
    case Arithmetic::Sqrt:
      return each([](float x, float) { return std::sqrt(x); }, a, b, result, n);
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

// Elements `at` to `at + n` as float32: where they lie, or widened into `room`.
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

// One tile at a time. Arrays that are written may be those read: a step writes into one that no
// later step reads, and what else there is is written when all steps are done.
class Machine {
 public:
  Machine(const Program& program, const float* scalars, const void* const* reads,
          void* const* writes)
      : program_(program), reads_(reads), writes_(writes),
        values_(program.first_step() + program.steps.size()), room_(program.rooms * kTile) {
    for (std::size_t i = 0; i < program.scalars; ++i) values_[i] = {scalars + i, true};
    targets_.resize(values_.size());
    for (std::size_t i = 0; i < program.writes.size(); ++i)
      if (is_free(i)) targets_[program.results[i]] = static_cast<float*>(writes[i]);
  }

  void run(std::size_t at, std::size_t n) {
    for (std::size_t i = 0; i < program_.reads.size(); ++i) {
      const auto value = program_.scalars + i;
      values_[value] = {load(program_.reads[i], reads_[i], at, room(value), n), false};
    }
    auto value = program_.first_step();
    for (const auto& step : program_.steps) {
      float* made = targets_[value] ? targets_[value] + at : room(value);
      take(step.kind, values_[step.a], values_[step.b], made, n);
      values_[value++] = {made, false};
    }
    for (std::size_t i = 0; i < program_.writes.size(); ++i)
      if (targets_[program_.results[i]] != writes_[i])
        store(program_.writes[i], values_[program_.results[i]].data, writes_[i], at, n);
  }

 private:
  // Whether the step that makes a result may write it where it goes: nothing else is read there
  // then or later.
  bool is_free(std::size_t result) const {
    const auto value = program_.results[result], first = program_.first_step();
    if (program_.writes[result] != Element::Float32 || value < first) return false;
    for (std::size_t i = 0; i < program_.reads.size(); ++i)
      if (reads_[i] == writes_[result] && program_.ends[program_.scalars + i] > value - first)
        return false;
    return true;
  }

  float* room(std::size_t value) { return room_.data() + program_.room_of[value] * kTile; }

  const Program& program_;
  const void* const* reads_;
  void* const* writes_;
  std::vector<Operand> values_;
  std::vector<float> room_;
  std::vector<float*> targets_;  // by value, the array that its step writes, if it does
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

void check_below(std::int64_t value, std::size_t from, std::size_t end, const char* what) {
  if (value < std::int64_t(from) || value >= std::int64_t(end))
    throw Error(std::string(what) + " must be values from " + std::to_string(from) + " to " +
                std::to_string(std::int64_t(end) - 1) + ", got: " + std::to_string(value));
}

std::vector<Step> steps_of(const std::vector<std::int64_t>& given, std::size_t first) {
  if (given.size() % 3)
    throw Error("program must be three numbers a step, got: " + std::to_string(given.size()));
  std::vector<Step> steps;
  for (std::size_t i = 0; i < given.size(); i += 3) {
    if (given[i] < 0 || given[i] >= kArithmetics)
      throw Error("a step must be of kind 0 to " + std::to_string(kArithmetics - 1) +
                  ", got: " + std::to_string(given[i]));
    for (const auto operand : {given[i + 1], given[i + 2]})
      check_below(operand, 0, first + steps.size(), "operands of a step");
    steps.push_back({Arithmetic(given[i]), std::size_t(given[i + 1]), std::size_t(given[i + 2])});
  }
  return steps;
}

// Returns how many steps are done when each value has been read for the last time.
std::vector<std::size_t> ends_of(const Program& program) {
  const auto count = program.steps.size();
  std::vector<std::size_t> ends(program.first_step() + count);
  for (std::size_t step = 0; step < count; ++step)
    for (const auto operand : {program.steps[step].a, program.steps[step].b})
      ends[operand] = step + 1;
  for (const auto result : program.results) ends[result] = count + 1;
  return ends;
}

// Gives values tiles to lie in, each as few steps long as it is read: all of them together would
// push what is read and written out of the nearest cache.
void give_rooms(Program& program) {
  std::vector<std::size_t> taken_until;  // by room, how many steps must be done
  program.ends = ends_of(program);
  program.room_of.resize(program.ends.size());
  const auto first = program.first_step();
  for (auto value = program.scalars; value < program.ends.size(); ++value) {
    const auto done = value < first ? 0 : value - first;
    const auto room = std::find_if(taken_until.begin(), taken_until.end(),
                                   [done](std::size_t end) { return end <= done; });
    program.room_of[value] = std::size_t(room - taken_until.begin());
    if (room == taken_until.end()) taken_until.push_back(program.ends[value]);
    else *room = program.ends[value];
  }
  program.rooms = taken_until.size();
}

}  // namespace

Program checked_program(std::int64_t scalars, const std::vector<std::int64_t>& reads,
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
  program.steps = steps_of(given, program.first_step());
  for (const auto result : results) {
    check_below(result, program.scalars, program.first_step() + program.steps.size(), "results");
    program.results.push_back(std::size_t(result));
  }
  give_rooms(program);
  return program;
}

void run_program(const Program& program, const float* scalars, const void* const* reads,
                 void* const* writes, std::size_t from, std::size_t end) {
  Machine machine(program, scalars, reads, writes);
  for (auto at = from; at < end; at += kTile) machine.run(at, std::min(kTile, end - at));
}

}  // namespace tensoropt
