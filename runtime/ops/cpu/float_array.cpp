#include "cpu/float_array.hpp"

#include <algorithm>
#include <new>
#include <tuple>
#include <utility>
#include <vector>

namespace tensoropt {
namespace {

constexpr std::align_val_t kAlignment{64};
constexpr std::size_t kMostKept = std::size_t{1} << 20;  // floats of all arrays of a thread

// Memory that a thread has used before. Arrays of up to twice the size are reused.
class KeptMemory {
 public:
  KeptMemory() = default;
  KeptMemory(const KeptMemory&) = delete;
  ~KeptMemory() { shrink(0); }

  // An array of at least `count` floats, and its number of floats.
  std::pair<float*, std::size_t> take(std::size_t count) {
    const auto fit = std::find_if(arrays_.begin(), arrays_.end(), [count](const auto& array) {
      return array.second >= count && array.second / 2 <= count;
    });
    if (fit == arrays_.end())
      return {static_cast<float*>(operator new[](count * sizeof(float), kAlignment)), count};
    const auto array = *fit;
    arrays_.erase(fit);
    size_ -= array.second;
    return array;
  }

  void keep(float* data, std::size_t count) {
    arrays_.emplace_back(data, count);
    size_ += count;
    shrink(kMostKept);
  }

 private:
  // Frees the oldest arrays until no more than `size` floats are left.
  void shrink(std::size_t size) {
    std::size_t freed = 0;
    for (; size_ > size; ++freed) {
      operator delete[](arrays_[freed].first, kAlignment);
      size_ -= arrays_[freed].second;
    }
    arrays_.erase(arrays_.begin(), arrays_.begin() + std::ptrdiff_t(freed));
  }

  std::vector<std::pair<float*, std::size_t>> arrays_;
  std::size_t size_ = 0;  // floats
};

thread_local KeptMemory kept_memory;

}  // namespace

FloatArray::FloatArray(std::size_t count) { std::tie(data_, count_) = kept_memory.take(count); }

FloatArray::~FloatArray() { kept_memory.keep(data_, count_); }

}  // namespace tensoropt
