// Attention on the CPU without a matrix of scores: tiles of scores are computed, weighed and used,
// as in FlashAttention (Dao et al., 2022). The memory per thread is a few tiles.
#pragma once

#include <cstddef>
#include <cstdint>

#include "element.hpp"

namespace tensoropt {

// Dropout of weights. With the product x of the seeds of a row and a key, their weight is
// multiplied by `scale` if x (x + mix) modulo 2^64 is above `threshold`, else by 0.
struct WeightDropout {
  const std::int64_t *rows = nullptr, *keys = nullptr;  // seeds, or null
  std::int64_t mix = 0, threshold = 0;
  float scale = 1;
};

// Sizes, operands and options of one node. Arrays are contiguous, of `type`: queries [batch, heads,
// queries, size], keys [batch, key_heads, keys, size], values [..., value_size]. Query head h reads
// key head h / (heads / key_heads).
struct Attention {
  Element type = Element::Float32;
  std::size_t batch = 0, heads = 0, key_heads = 0, queries = 0, keys = 0, size = 0, value_size = 0;
  const void *q = nullptr, *k = nullptr, *v = nullptr;

  const void* bias = nullptr;             // or null
  std::size_t bias_sizes[3] = {1, 1, 1};  // by batch, head and query: 1 or the full size
  const std::int64_t* lengths = nullptr;  // or null: keys per batch
  std::int64_t offset = 0;                // position of the first query
  WeightDropout dropout;                  // seeds by batch, head and query, and by key
  float scale = 1, cap = 0;               // a cap of 0 is none
  std::int64_t window = 0;                // 0 is none
  bool causal = false;

  std::size_t group() const { return heads / key_heads; }
  std::size_t rows() const { return group() * queries; }  // of one key head

  // The number of the row of the bias that a query reads.
  std::size_t bias_row(std::size_t at_batch, std::size_t head, std::size_t query) const {
    const auto of = [&](std::size_t i, std::size_t at) { return bias_sizes[i] == 1 ? 0 : at; };
    return (of(0, at_batch) * bias_sizes[1] + of(1, head)) * bias_sizes[2] + of(2, query);
  }
};

// The forward pass in parts, which may run at the same time; `lse` or null.
class AttentionParts {
 public:
  AttentionParts(const Attention& attention, void* y, float* lse);

  std::size_t count() const { return attention_.batch * attention_.key_heads * blocks_; }
  void run(std::size_t part) const;

 private:
  const Attention& attention_;
  void* y_;
  float* lse_;
  std::size_t block_;   // rows of a part
  std::size_t blocks_;  // of the rows of a key head
};

}  // namespace tensoropt
