// How much of ONNX Runtime's arena tensors touch that come and go (decision 46).
#pragma once

#include <cstdint>
#include <vector>

namespace tensoropt::search {

// A tensor that is there from one moment to another, both included.
struct Life {
  std::int64_t first, last, bytes;
};

// How many bytes of an arena are ever written. It takes the smallest free block that is large
// enough and cuts it where twice as large; its first block has room for `expected` bytes, twice,
// another is added where nothing fits. O(n log n) for n lives.
std::int64_t touched_bytes(const std::vector<Life>& lives, std::int64_t expected);

}  // namespace tensoropt::search
