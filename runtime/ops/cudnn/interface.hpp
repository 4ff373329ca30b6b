// The interface of libtensoropt_cudnn.so, which has attention by cuDNN. It has C types only, and is
// the same with and without the headers of CUDA.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

namespace tensoropt::cudnn {

// The keys that a query reads if attention is causal, by the place of the diagonal.
enum class Band : std::int64_t {
  All,
  FromFirst,  // query i reads keys up to i
  ToLast,     // the last query reads all keys, the one before it one less
};

// Sizes and options of attention, or of its gradient. Tensors are contiguous, except that keys and
// values have `key_rows` rows per head, and the bias as many columns. `keys` of them are read.
struct Form {
  std::int64_t gradient = 0, type = 0;  // type: an ONNX number, of float16 or bfloat16
  std::int64_t batch = 0, heads = 0, key_heads = 0;
  std::int64_t queries = 0, keys = 0, key_rows = 0, size = 0, value_size = 0;
  Band band = Band::All;
  std::int64_t window = 0;                                        // 0 is none
  std::int64_t bias_batch = 0, bias_heads = 0, bias_queries = 0;  // 0 is no bias
  std::int64_t lengths = 0, lse = 0, dbias = 0;                   // 1 if the tensor exists
  float scale = 1, cap = 0;                                       // a cap of 0 is none

  auto operator<=>(const Form&) const = default;
};

// Places of a run's tensors. Lengths are int32, one per batch.
enum Tensor { Q, K, V, Bias, QueryLengths, KeyLengths, Y, Lse, DY, DQ, DK, DV, DBias };
inline constexpr std::size_t kTensors = DBias + 1;

struct Plan;

}  // namespace tensoropt::cudnn

extern "C" {

// Makes a plan and sets the size of its workspace; plans are never destroyed. It runs on the
// current device, or, if `gpu` is not null, nowhere: then it is for the GPU that this JSON text
// describes, as cuDNN does. Returns null, or the error, valid until the next call of the thread.
const char* tensoropt_cudnn_plan(const tensoropt::cudnn::Form* form, const char* gpu,
                                 tensoropt::cudnn::Plan** plan, std::size_t* workspace_bytes);

// Enqueues a run of a plan. Returns null, or the error.
const char* tensoropt_cudnn_run(tensoropt::cudnn::Plan* plan, void* stream,
                                void* const tensors[tensoropt::cudnn::kTensors], void* workspace);
}
