// Which collectives of a program become one, and in which order it then runs.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tensoropt::search {

// The time of collectives alike in bytes: the least of lines, or the greatest; and of packing.
struct CollectiveTime {
  std::vector<std::pair<double, double>> lines;  // seconds, seconds per byte
  bool greatest = false;
  double packing_s_per_byte = 0;

  double at(double bytes) const;
};

// Numbers in rows, appended one after another.
struct Rows {
  std::vector<std::int32_t> begin{0}, values;

  void close() { begin.push_back(std::int32_t(values.size())); }
  std::size_t size() const { return begin.size() - 1; }
  std::span<const std::int32_t> operator[](std::size_t row) const {
    return {values.data() + begin[row], values.data() + begin[row + 1]};
  }
};

// A program as tasks, the last of which is its return. Tensors that come and go are numbers; what
// stays is none. Only collectives of one key may become one, and only those of one part of a
// training step.
struct Tasks {
  std::vector<std::int32_t> key;  // -1 for what is no collective
  std::vector<double> bytes;      // that one rank puts in
  std::vector<std::uint8_t> part;
  Rows reads, makes;                // tensors
  Rows after;                       // tasks
  std::vector<std::int64_t> size;   // of each tensor
  std::vector<std::int32_t> given;  // tensors that are there at first

  std::size_t count() const { return key.size(); }
};

struct Joined {
  std::vector<std::int32_t> order;  // tasks; those of a group stand together
  std::vector<std::int32_t> group;  // per task the first of its group, -1 for one alone
  std::int64_t peak = 0;            // bytes alive in that order
  bool any = false;
};

// Joins what takes less time as one, packing counted, and needs no more memory than the program
// takes anyway. Linear in the program, but for a few rounds.
Joined join(const Tasks& tasks, const std::vector<CollectiveTime>& times);

// Seconds that each group takes less than its collectives alone, and in which part.
std::vector<std::pair<double, std::uint8_t>> saved_s(const Joined& joined, const Tasks& tasks,
                                                     const std::vector<CollectiveTime>& times);

// Per task its place in the order; those of a group have one.
std::vector<std::int32_t> places(const Joined& joined);

}  // namespace tensoropt::search
