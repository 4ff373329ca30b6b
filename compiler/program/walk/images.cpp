#include "images.hpp"

#include <algorithm>

namespace tensoropt::program {
namespace {

constexpr std::int64_t kStep = 4;  // ticks per step of the walk: copies are between two steps

bool reads_blocks(std::uint16_t node, const std::vector<ReadTensor*>& read) {
  if (node & Images::Blocks) return true;
  if (!(node & Images::Keeps)) return false;
  bool found = false;
  for (const ReadTensor* tensor : read) {
    if (!tensor->is_image()) continue;
    if (!tensor->is_blocked()) return false;
    found = true;
  }
  return found;
}

// Returns whether a node is fused into the producer of an operand that dies with it.
bool joins(std::uint16_t node, const ReadTensor& operand) {
  if (node & Images::InPlace) return true;
  if (operand.is_blocked())
    return node & Images::Fuses || (node & Images::Sums && operand.is_of(Images::Folds));
  return node & Images::AddsWeight && operand.is_of(Images::Product);
}

}  // namespace

void ReadTensor::read(std::int64_t moment, bool in_blocks) {
  Reads& reads = in_blocks && is_image() ? in_blocks_ : as_it_is_;
  if (reads.first < 0) reads.first = moment;
  reads.last = moment;
}

void ReadTensor::made(std::uint16_t maker, bool in_blocks) {
  maker_ = maker;
  blocked_ = in_blocks && is_image();
}

void ReadTensor::takes_in(ReadTensor& operand) {
  first_ = std::min(first_, operand.first_);
  operand.bytes_ = 0;
}

void ReadTensor::copied(std::int64_t moment, int copies) {
  copies_.assign(copies, {kStep * moment, kStep * moment, bytes_});
}

void ReadTensor::add_to(std::vector<Life>& lives) const {
  lives.insert(lives.end(), copies_.begin(), copies_.end());
  if (is_outside()) return;
  const Reads& own = blocked_ ? in_blocks_ : as_it_is_;
  const Reads& other = blocked_ ? as_it_is_ : in_blocks_;
  if (other.first < 0) {
    lives.push_back({kStep * first_, kStep * last_, bytes_});
    return;
  }
  const std::int64_t copied = kStep * other.first - 1;
  lives.push_back({kStep * first_, std::max(copied, kStep * own.last), bytes_});
  lives.push_back({copied, kStep * other.last, bytes_});
}

void note_run(std::uint16_t node, std::int64_t moment, const std::vector<ReadTensor*>& read,
              const std::vector<ReadTensor*>& made) {
  if (!(node & Images::Op)) return;
  const bool in_blocks = reads_blocks(node, read);
  for (ReadTensor* tensor : read) tensor->read(moment, in_blocks);
  for (ReadTensor* tensor : made) tensor->made(node, in_blocks);
  if (const int copies = bool(node & Images::Copies) + bool(node & Images::CopiesBoth);
      copies && !made.empty())
    made.front()->copied(moment, copies);
  const auto part = std::find_if(read.begin(), read.end(), [&](const ReadTensor* tensor) {
    return tensor->ends(moment) && joins(node, *tensor);
  });
  if (part == read.end() || made.empty()) return;
  made.front()->takes_in(**part);
  // A convolution adds to its other summand in place, if nothing else reads that.
  if (!((*part)->is_of(Images::Folds) && node & Images::Sums)) return;
  for (ReadTensor* tensor : read)
    if (tensor != *part && tensor->is_blocked() && tensor->ends(moment))
      made.front()->takes_in(*tensor);
}

}  // namespace tensoropt::program
