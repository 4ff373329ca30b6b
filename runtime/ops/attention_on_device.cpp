#include "attention_on_device.hpp"

#include <algorithm>
#include <vector>

#include "cuda/cuda_api.hpp"
#include "cudnn/plans.hpp"
#include "shape.hpp"

namespace tensoropt {
namespace {

using cudnn::Tensor;

// Forms that have no equivalent in cuDNN; it refuses others itself. As in
// runtime/support/cudnn_attention.py, which plans ask.
const char* refusal(const Attention& attention) {
  const auto& a = attention;
  if (!a.batch || !a.heads || !a.queries || !a.keys) return "no elements";
  if (a.dropout.rows) return "dropout of weights";
  if (a.window && !a.causal) return "a window without causality";
  if (a.lengths && (a.offset || a.window))
    return "lengths of texts together with an offset or a window";
  if (a.lengths && a.cap != 0) return "a limit of scores by tanh together with lengths of texts";
  if (!a.causal || !a.offset) return nullptr;
  if (a.offset < 0 || std::size_t(a.offset) + a.queries > a.keys)
    return "queries at positions without keys";
  return nullptr;
}

[[noreturn]] void refuse(const char* reason) {
  throw Error(std::string("attention on GPUs does not take ") + reason);
}

// Causal attention reads no key after the last query, so an offset places the diagonal at the end
// of the keys that are left.
cudnn::Form form_of(const Attention& attention) {
  const auto size = [](std::size_t number) { return std::int64_t(number); };
  cudnn::Form form;
  form.type = std::int64_t(attention.type);
  form.batch = size(attention.batch);
  form.heads = size(attention.heads), form.key_heads = size(attention.key_heads);
  form.queries = size(attention.queries), form.keys = form.key_rows = size(attention.keys);
  form.size = size(attention.size), form.value_size = size(attention.value_size);
  form.window = attention.window;
  form.scale = attention.scale, form.cap = attention.cap;
  form.lengths = attention.lengths != nullptr;
  if (attention.bias) {
    form.bias_batch = size(attention.bias_sizes[0]);
    form.bias_heads = size(attention.bias_sizes[1]);
    form.bias_queries = size(attention.bias_sizes[2]);
  }
  if (attention.causal) {
    form.keys = std::min(form.keys, attention.offset + form.queries);
    form.band = attention.offset ? cudnn::Band::ToLast : cudnn::Band::FromFirst;
  }
  return form;
}

// Memory of the arena that later work on the stream may reuse as soon as this object is gone.
class Scratch {
 public:
  Scratch(const Arena& arena, OrtKernelContext* context, std::size_t bytes)
      : arena_(arena), data_(bytes ? arena.take(context, bytes) : nullptr) {}
  ~Scratch() {
    if (data_) arena_.give_back(data_);
  }
  Scratch(const Scratch&) = delete;

  void* data() const { return data_; }

 private:
  const Arena& arena_;
  void* data_;
};

// One run of a node: its tensors, and the work that is enqueued.
class Run {
 public:
  Run(const AttentionNode& self, OrtKernelContext* context, const Attention& attention)
      : self_(self), context_(context), stream_(self.api.stream(context)), attention_(attention) {
    if (const auto* reason = refusal(attention)) refuse(reason);
    form_ = form_of(attention);
    set(Tensor::Q, attention.q), set(Tensor::K, attention.k), set(Tensor::V, attention.v);
    set(Tensor::Bias, attention.bias);
  }

  void set(Tensor tensor, const void* data) { tensors_[tensor] = const_cast<void*>(data); }

  void attend(void* y, float* lse) {
    set(Tensor::Y, y), set(Tensor::Lse, lse);
    form_.lse = lse != nullptr;
    enqueue();
  }

  void differentiate(const AttentionGradients& gradients) {
    form_.gradient = 1;
    form_.dbias = gradients.dbias != nullptr;
    if (form_.dbias && form_.bias_queries != form_.queries)
      refuse("the gradient of a bias that is the same for all queries");
    set(Tensor::DY, gradients.dy), set(Tensor::Y, gradients.y), set(Tensor::Lse, gradients.lse);
    set(Tensor::DQ, gradients.dq), set(Tensor::DK, gradients.dk), set(Tensor::DV, gradients.dv);
    set(Tensor::DBias, gradients.dbias);
    const auto heads = form_.batch * form_.key_heads;
    clear_unread(gradients.dk, heads, form_.size);
    clear_unread(gradients.dv, heads, form_.value_size);
    if (form_.dbias)
      clear_unread(gradients.dbias, form_.bias_batch * form_.bias_heads * form_.bias_queries, 1);
    enqueue();
  }

 private:
  // Sets gradients of keys that no query reads to 0, as cuDNN may leave them out. The array has
  // `rows` rows with `width` elements for each key.
  void clear_unread(void* gradient, std::int64_t rows, std::int64_t width) const {
    const auto first = form_.lengths ? 0 : form_.keys;
    const auto bytes = std::size_t(width) * element_info(int(form_.type)).bytes;
    const auto pitch = std::size_t(form_.key_rows) * bytes, start = std::size_t(first) * bytes;
    if (start < pitch)
      clear_rows_on_device(static_cast<char*>(gradient) + start, pitch, pitch - start,
                           std::size_t(rows), stream_);
  }

  void enqueue() {
    const Scratch lengths(*self_.arena, context_, form_.lengths ? lengths_bytes() : 0);
    if (form_.lengths) copy_lengths(static_cast<std::int32_t*>(lengths.data()));
    const auto& plan = cudnn_plan(form_, self_.arena->device());
    const Scratch workspace(*self_.arena, context_, plan.workspace_bytes);
    plan.run(stream_, tensors_, workspace.data());
  }

  std::size_t lengths_bytes() const { return 2 * attention_.batch * sizeof(std::int32_t); }

  // The lengths of queries, which are never padded, then the lengths of keys.
  void copy_lengths(std::int32_t* to) {
    if (is_captured(stream_)) throw Error("lengths cannot be part of a CUDA graph");
    std::vector<std::int32_t> lengths(attention_.batch, std::int32_t(form_.queries));
    for (std::size_t i = 0; i < attention_.batch; ++i) {
      if (attention_.lengths[i] < 1)
        throw Error("lengths must be 1 or more on a GPU, got: " +
                    std::to_string(attention_.lengths[i]));
      lengths.push_back(std::int32_t(std::min(attention_.lengths[i], form_.keys)));
    }
    copy_to_device(lengths.data(), to, lengths_bytes(), stream_);
    set(Tensor::QueryLengths, to), set(Tensor::KeyLengths, to + attention_.batch);
  }

  const AttentionNode& self_;
  OrtKernelContext* context_;
  CudaStream stream_;
  const Attention& attention_;
  cudnn::Form form_;
  void* tensors_[cudnn::kTensors] = {};
};

}  // namespace

void attend_on_device(const AttentionNode& self, OrtKernelContext* context) {
  const auto attention = read_attention(self, context, 0, 3);
  auto* y = result(self, context, attention);
  Run(self, context, attention).attend(y, lse_result(self, context, attention));
}

void differentiate_on_device(const AttentionNode& self, OrtKernelContext* context) {
  const auto attention = read_attention(self, context, 1, 6);
  Run(self, context, attention).differentiate(read_gradients(self, context, attention));
}

}  // namespace tensoropt
