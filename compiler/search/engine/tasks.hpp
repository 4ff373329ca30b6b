// A program as tasks that read and make tensors, and how long these are alive.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tensoropt::search {

// Numbers in rows, appended one after another.
struct Rows {
  std::vector<std::int32_t> begin{0}, values;

  void close() { begin.push_back(std::int32_t(values.size())); }
  std::size_t size() const { return begin.size() - 1; }
  std::span<const std::int32_t> operator[](std::size_t row) const {
    return {values.data() + begin[row], values.data() + begin[row + 1]};
  }
};

// What a collective does to its operands if operators run beside it.
enum class Beside : std::uint8_t {
  Never,   // none can: it is part of a task that computes, or it is no collective
  Frees,   // reads them when it begins
  Holds,   // reads them until it ends
  Blocks,  // it is sent, and no operator can run meanwhile
};

// A program as tasks, the last of which is its return. Tensors that come and go are numbers; what
// stays is none. Only collectives of one key may become one, and only those of one part of a
// training step.
struct Tasks {
  std::vector<std::int32_t> key;  // -1 for what is never one with others
  std::vector<double> bytes;      // that one rank puts in
  std::vector<std::uint8_t> part;
  Rows reads, makes;                // tensors
  Rows after;                       // tasks
  std::vector<std::int64_t> size;   // of each tensor
  std::vector<std::int32_t> given;  // tensors that are there at first
  std::vector<double> compute_s;    // seconds of each task on its own,
  std::vector<double> sent_s;       // and of what it sends
  std::vector<Beside> beside;
  std::vector<std::int64_t>
      lands;  // bytes written where old state was; elsewhere, if it is started

  std::size_t count() const { return key.size(); }
};

// What may run later: a tail reads nothing that comes and goes but what collectives made, tails
// made of it, or something made of what stays; and nothing but tails reads what it makes. The
// level of a tail is the number of collectives before it.
struct Tails {
  std::vector<std::uint8_t> is_tail;
  std::vector<std::int32_t> level;
};
Tails tails_of(const Tasks& tasks);

// Where tasks are in an order. What a task makes is there until `until` at the least, and what it
// reads too if it holds it.
struct Places {
  std::vector<std::int32_t> place, until;
  std::vector<std::uint8_t> holds;

  explicit Places(std::vector<std::int32_t> given)
      : place(std::move(given)), until(place), holds(place.size(), 0) {}
};

// The first and the last place of a tensor; of what nothing makes or reads the last is -1.
struct Span {
  std::int32_t first, last;
};
std::vector<Span> spans_of(const Tasks& tasks, const Places& places);

// Bytes alive at each place, and nothing behind the last.
std::vector<std::int64_t> alive_bytes(const Tasks& tasks, const Places& places);

std::int64_t highest(const std::vector<std::int64_t>& bytes);

}  // namespace tensoropt::search
