// What moves contiguous pieces between the ranks of a group: MPI on the host, NCCL on the device.
#pragma once

#include <cstddef>
#include <functional>

#include "collective.hpp"
#include "strided.hpp"

namespace tensoropt {

inline const char* at(const void* data, std::size_t offset) {
  return static_cast<const char*>(data) + offset;
}

inline char* at(void* data, std::size_t offset) { return static_cast<char*>(data) + offset; }

// Bound to one run of one node: its group, its element type and, on a device, its stream. Counts
// are of elements per rank and row; places are places in the group.
class Transport {
 public:
  virtual ~Transport() = default;

  // Up to how many rows a gather or scatter takes as they lie, without packing them first.
  virtual std::size_t most_rows() const = 0;

  // Bytes that are packed at a time, all pieces together; more only where they lie as they should.
  virtual std::size_t most_packed() const = 0;

  // y may be x.
  virtual void all_reduce(const void* x, void* y, std::size_t count, Reduction reduction) = 0;

  // Row i of y, [rows, ranks, count], holds row i of each rank's x, [rows, count].
  virtual void all_gather(const void* x, void* y, std::size_t count, std::size_t rows) = 0;

  // Row i of y, [rows, count], is this rank's piece of the combined row i of x, [rows, ranks,
  // count].
  virtual void reduce_scatter(const void* x, void* y, std::size_t count, std::size_t rows,
                              Reduction reduction) = 0;

  // Piece i of x, [ranks, count], goes to place i; piece i of y comes from there.
  virtual void all_to_all(const void* x, void* y, std::size_t count) = 0;

  // x goes to place `to`, y comes from place `from`; both may be this one.
  virtual void exchange(const void* x, void* y, std::size_t count, int to, int from) = 0;

  virtual void broadcast(const void* x, void* y, std::size_t count, int root) = 0;
  virtual void send(const void* x, std::size_t count, int place) = 0;
  virtual void recv(void* y, std::size_t count, int place) = 0;

  // Whether each call is a launch, of which several can be one.
  virtual bool launches() const = 0;

  // Runs calls of `body` as one, where they are launches.
  virtual void as_one(const std::function<void()>& body) = 0;

  virtual void copy(const void* from, void* to, std::size_t bytes) = 0;

  // [outer, pieces, chunk] -> [pieces, outer, chunk], and back.
  virtual void pack(const Cut& cut, const void* tensor, void* pieces) = 0;
  virtual void unpack(const Cut& cut, const void* pieces, void* tensor) = 0;

  // Memory of at least `bytes` for this run; `index` (0 or 1) tells two at a time apart.
  virtual void* scratch(std::size_t index, std::size_t bytes) = 0;
};

// Runs `node` on x of `shape` (on y of that shape where there is no x).
void run(const Collective& node, const ElementInfo& element, const Shape& shape, const void* x,
         void* y, Transport& transport);

}  // namespace tensoropt
