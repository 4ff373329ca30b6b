// Transfer of contiguous pieces between the ranks of a group: MPI on the host, NCCL on the device.
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
// are elements per rank and row; places are positions in the group.
class Transport {
 public:
  virtual ~Transport() = default;

  // Largest number of rows that a gather or scatter takes in place, without packing.
  virtual std::size_t most_rows() const = 0;

  // Limit of packed bytes, for all pieces together; does not apply to contiguous data.
  virtual std::size_t most_packed() const = 0;

  // y may alias x.
  virtual void all_reduce(const void* x, void* y, std::size_t count, Reduction reduction) = 0;

  // Row i of y, [rows, ranks, count], consists of row i of each rank's x, [rows, count].
  virtual void all_gather(const void* x, void* y, std::size_t count, std::size_t rows) = 0;

  // Row i of y, [rows, count], is this rank's piece of the reduced row i of x, [rows, ranks,
  // count].
  virtual void reduce_scatter(const void* x, void* y, std::size_t count, std::size_t rows,
                              Reduction reduction) = 0;

  // Piece i of x, [ranks, count], goes to place i; piece i of y comes from there.
  virtual void all_to_all(const void* x, void* y, std::size_t count) = 0;

  // Pieces of different sizes: `sent` and `received` have the elements for and from each place.
  virtual void all_to_all_unequal(const void* x, const std::size_t* sent, void* y,
                                  const std::size_t* received) = 0;

  // x goes to place `to`, y comes from place `from`; both may be this rank's place.
  virtual void exchange(const void* x, void* y, std::size_t count, int to, int from) = 0;

  virtual void broadcast(const void* x, void* y, std::size_t count, int root) = 0;
  virtual void send(const void* x, std::size_t count, int place) = 0;
  virtual void recv(void* y, std::size_t count, int place) = 0;

  // True if each call is a launch, and several calls can be one launch.
  virtual bool launches() const = 0;

  // Runs the calls of `body` in one launch, if they are launches.
  virtual void as_one(const std::function<void()>& body) = 0;

  virtual void copy(const void* from, void* to, std::size_t bytes) = 0;

  // [outer, pieces, chunk] -> [pieces, outer, chunk], and back.
  virtual void pack(const Cut& cut, const void* tensor, void* pieces) = 0;
  virtual void unpack(const Cut& cut, const void* pieces, void* tensor) = 0;

  // Memory of at least `bytes` for this run; `index` (0 or 1) distinguishes concurrent buffers.
  virtual void* scratch(std::size_t index, std::size_t bytes) = 0;
};

}  // namespace tensoropt
