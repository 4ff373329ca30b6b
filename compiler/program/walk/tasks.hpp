// A program as tasks that read and make tensors, and the live ranges of these.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tensoropt::program {

// Numbers in rows, appended in sequence.
struct Rows {
  std::vector<std::int32_t> begin{0}, values;

  void close() { begin.push_back(std::int32_t(values.size())); }
  std::size_t size() const { return begin.size() - 1; }
  std::span<const std::int32_t> operator[](std::size_t row) const {
    return {values.data() + begin[row], values.data() + begin[row + 1]};
  }
};

// The effect of a collective on its operands if operators run during it.
enum class Beside : std::uint8_t {
  Never,   // cannot overlap: part of a task that computes, or no collective
  Frees,   // reads them when it starts
  Holds,   // reads them until it ends
  Blocks,  // is sent, and no operator can run during it
};

// A program as tasks; the last task is its return. Transient tensors are numbered, static ones are
// left out. Only collectives of one key and of one part of a training step can be fused.
struct Tasks {
  std::vector<std::int32_t> key;  // -1 if it is never fused
  std::vector<double> bytes;      // of one rank's part
  std::vector<std::uint8_t> part;
  Rows reads, makes;                // tensors
  Rows after;                       // tasks
  std::vector<std::int64_t> size;   // of each tensor
  std::vector<std::int32_t> given;  // tensors that exist at the start
  std::vector<double> compute_s;    // seconds of each task on its own
  std::vector<double> sent_s;       // seconds of its communication
  std::vector<Beside> beside;
  std::vector<std::int64_t>
      lands;  // bytes written over old state; stored elsewhere, if it starts early

  std::size_t count() const { return key.size(); }
};

// Tasks that may run later. A tail reads only transient tensors made by collectives, by tails of
// these, or from static tensors; and only tails read its results. The level of a tail is the number
// of collectives before it.
struct Tails {
  std::vector<std::uint8_t> is_tail;
  std::vector<std::int32_t> level;
};
Tails tails_of(const Tasks& tasks);

// Returns the tasks of each graph of a program as a program of its own. A task runs in the graph
// that `graph` has for it, or an earlier one that reads its results, and not before its operands
// are made. Tensors that pass from a graph are live until its end. Linear.
std::vector<Tasks> divided(const Tasks& tasks, std::vector<std::int32_t> graph, std::size_t graphs);

// The places of tasks in an order. A task's results are live at least until `until`, and so are its
// operands if it holds them.
struct Places {
  std::vector<std::int32_t> place, until;
  std::vector<std::uint8_t> holds;

  explicit Places(std::vector<std::int32_t> given)
      : place(std::move(given)), until(place), holds(place.size(), 0) {}
};

// The first and the last place of a tensor; the last is -1 if nothing makes or reads it.
struct Span {
  std::int32_t first, last;
};
std::vector<Span> spans_of(const Tasks& tasks, const Places& places);

// Returns the live bytes at each place, then a zero.
std::vector<std::int64_t> alive_bytes(const Tasks& tasks, const Places& places);

std::int64_t highest(const std::vector<std::int64_t>& bytes);

}  // namespace tensoropt::program
