// Bytes of ONNX Runtime's arena that transient tensors ever write to (decision 46).
#pragma once

#include <cstdint>
#include <vector>

namespace tensoropt::program {

// The live range of a transient tensor, both ends included, and its size.
struct Life {
  std::int64_t first, last, bytes;
};

// Returns the bytes of an arena that are ever written. The arena takes the smallest free block that
// is large enough, and splits it if it is twice as large. Its first block has room for twice
// `expected` bytes; a block is added when nothing fits. O(n log n) for n lives.
std::int64_t touched_bytes(const std::vector<Life>& lives, std::int64_t expected);

}  // namespace tensoropt::program
