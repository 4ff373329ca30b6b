// What comes and goes on a rank while ONNX Runtime runs an assignment, in its arena: the tensors of
// a walk, and copies of images. Convolutions and what follows them have images in blocks of
// channels (NCHWc), which all else has not, collectives among them. A copy is made right before
// what reads it.
#pragma once

#include <cstdint>
#include <vector>

#include "arena.hpp"

namespace tensoropt::search {

// What nodes and values are to that, in the numbers of a `Program`.
struct Images {
  enum Node : std::uint16_t {
    Op = 1,            // it runs
    Blocks = 2,        // it reads images in blocks, whatever made them, and gives such
    Keeps = 4,         // it does where all of its images are in blocks
    Fuses = 8,         // it becomes part of what made its operand, where that is in blocks
    Sums = 16,         // it becomes part of a convolution before it
    Folds = 32,        // sums become part of it
    InPlace = 64,      // its result lies where its operand does
    Product = 128,     // a sum with a weight becomes part of it
    AddsWeight = 256,  // it is such a sum
    Copies = 512,      // it holds a copy of its result while it runs
    CopiesBoth = 1024  // and another one
  };
  enum Value : std::uint8_t {
    Image = 1,
    Outside = 2  // an input or an output, which lies outside of the arena
  };
  std::vector<std::uint16_t> nodes;
  std::vector<std::uint8_t> values;
};

// A tensor of a walk, with its reads in blocks and as it is: the first and last moment of each.
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
  // Lets an operand be this tensor from its beginning.
  void takes_in(ReadTensor& operand);
  // Lets what makes it hold so many copies meanwhile.
  void copied(std::int64_t moment, int copies);
  // Adds its life, and those of its copies if there are any.
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

// Notes that a node runs which reads and makes these.
void note_run(std::uint16_t node, std::int64_t moment, const std::vector<ReadTensor*>& read,
              const std::vector<ReadTensor*>& made);

}  // namespace tensoropt::search
