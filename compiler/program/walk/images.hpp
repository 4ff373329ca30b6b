// Live ranges in ONNX Runtime's arena while a rank runs an assignment: the tensors of a walk, and
// copies of images. Convolutions and some of their readers store images in blocks of channels
// (NCHWc). All other operations, collectives included, need the plain format. A copy is made right
// before its first reader.
#pragma once

#include <cstdint>
#include <vector>

#include "arena.hpp"

namespace tensoropt::program {

// The properties of nodes and values that decide about copies, numbered as in a `Program`.
struct Images {
  enum Node : std::uint16_t {
    Op = 1,            // it runs
    Blocks = 2,        // it always reads and produces blocked images
    Keeps = 4,         // it does so if all of its images are blocked
    Fuses = 8,         // it is fused into the producer of its operand, if that is blocked
    Sums = 16,         // it is fused into a convolution before it
    Folds = 32,        // sums are fused into it
    InPlace = 64,      // its result overwrites its operand
    Product = 128,     // a sum with a weight is fused into it
    AddsWeight = 256,  // it is a sum with a weight
    Copies = 512,      // it stores a copy of its result while it runs
    CopiesBoth = 1024  // and a second copy
  };
  enum Value : std::uint8_t {
    Image = 1,
    Outside = 2  // an input or an output, stored outside the arena
  };
  std::vector<std::uint16_t> nodes;
  std::vector<std::uint8_t> values;
};

// A tensor of a walk, with its first and last read in each format (blocked and plain).
class ReadTensor {
 public:
  ReadTensor(std::int64_t first, std::int64_t last, std::int64_t bytes, std::uint8_t value)
      : value_(value), first_(first), last_(last), bytes_(bytes) {}

  bool is_image() const { return value_ & Images::Image; }
  bool is_outside() const { return value_ & Images::Outside; }
  bool is_blocked() const { return blocked_; }
  bool ends(std::int64_t moment) const { return last_ == moment; }
  bool is_of(std::uint16_t maker) const { return maker_ & maker; }

  void read(std::int64_t moment, bool in_blocks);
  void made(std::uint16_t maker, bool in_blocks);
  // Takes over the memory of an operand: this tensor is live from the operand's start.
  void takes_in(ReadTensor& operand);
  // Adds copies of the result that its producer stores while it runs.
  void copied(std::int64_t moment, int copies);
  // Adds its live range, and the live ranges of its copies.
  void add_to(std::vector<Life>& lives) const;

 private:
  struct Reads {
    std::int64_t first = -1, last = -1;
  };
  std::uint8_t value_;
  bool blocked_ = false;
  std::uint16_t maker_ = 0;
  std::int64_t first_, last_, bytes_;
  Reads in_blocks_, as_it_is_;
  std::vector<Life> copies_;
};

// Records the run of a node that reads and makes these tensors.
void note_run(std::uint16_t node, std::int64_t moment, const std::vector<ReadTensor*>& read,
              const std::vector<ReadTensor*>& made);

}  // namespace tensoropt::program
