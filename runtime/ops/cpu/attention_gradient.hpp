// The gradient of attention on the CPU: tiles of scores are computed again from the logarithms of
// the sums, so that none are kept.
#pragma once

#include <memory>

#include "cpu/attention.hpp"

namespace tensoropt {

class FloatArray;

// The results of the forward pass and their gradient, and the gradients to compute; `dbias` or
// null.
struct AttentionGradients {
  const void *dy, *y;
  const float* lse;
  void *dq, *dk, *dv, *dbias;
};

// The gradients of queries, keys and values in parts, which may run at the same time; then the
// merges, which may, too. Sums are in an order that does not depend on the number of threads.
class AttentionGradientParts {
 public:
  AttentionGradientParts(const Attention& attention, const AttentionGradients& gradients);
  ~AttentionGradientParts();

  std::size_t count() const { return heads() * chunks_; }
  void run(std::size_t part) const;

  std::size_t merges() const;
  void merge(std::size_t part) const;

 private:
  // Where a part sums the gradients of keys and values.
  struct Sums {
    float *dk, *dv;
    std::size_t width, value_width;
  };

  std::size_t heads() const { return attention_.batch * attention_.key_heads; }
  Sums sums_of(std::size_t part) const;

  const Attention& attention_;
  const AttentionGradients& gradients_;
  std::size_t blocks_;  // of the rows of a key head
  std::size_t chunks_;  // parts of a key head: block i is of part i % chunks_
  std::size_t sums_size_ = 0;
  std::unique_ptr<FloatArray> sums_;  // of all parts; null if they sum in the results
};

// The gradient of the bias in parts, which may run at the same time: each computes the tiles of
// scores that are summed in one tile of the result.
class BiasGradientParts {
 public:
  BiasGradientParts(const Attention& attention, const AttentionGradients& gradients);

  std::size_t count() const;
  void run(std::size_t part) const;

 private:
  const Attention& attention_;
  const AttentionGradients& gradients_;
  std::size_t blocks_, tiles_;  // of queries (1 if they share a row) and of keys
};

}  // namespace tensoropt
