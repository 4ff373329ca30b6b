// Attention by cuDNN: graphs of cudnn-frontend. The only unit that includes headers of CUDA and
// cuDNN; neither is linked.
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#include <cudnn_frontend.h>
#include <dlfcn.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cudnn/interface.hpp"

namespace cudnn_frontend {
// The library that ONNX Runtime has loaded; null without one.
void* cudnn_dlhandle = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
}  // namespace cudnn_frontend

namespace fe = cudnn_frontend;

namespace tensoropt::cudnn {

struct Plan {
  std::shared_ptr<fe::graph::Graph> graph;
  std::vector<Tensor> tensors;
  cudnnHandle_t handle;  // null if it is for a described GPU
};

namespace {

using GraphTensor = std::shared_ptr<fe::graph::Tensor_attributes>;
using Modified = std::shared_ptr<fe::graph::Graph>;
using Sizes = std::vector<std::int64_t>;

constexpr int kBFloat16 = 16;  // ONNX's number
std::mutex mutex;              // of a handle's stream

void check(fe::error_t error) {
  if (error.is_bad()) throw std::runtime_error(error.get_message());
}

// A graph of one operation, with our numbers of its tensors. It is for the current device, or for
// the GPU of a description.
class Graph {
 public:
  Graph(const Form& form, const char* gpu) : form_(form) {
    if (gpu) describe_gpu(gpu);
    const bool is_bfloat16 = form.type == kBFloat16;
    graph_->set_io_data_type(is_bfloat16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    if (form.gradient) differentiate();
    else attend();
  }

  fe::graph::Graph& graph() { return *graph_; }
  Plan plan(cudnnHandle_t handle) && { return {std::move(graph_), std::move(tensors_), handle}; }

 private:
  void describe_gpu(const std::string& gpu) {
    const auto properties = std::make_shared<fe::DeviceProperties>();
    std::vector<std::uint8_t> text(gpu.begin(), gpu.end());
    text.push_back(0);
    check(properties->deserialize(text));
    const int version = nlohmann::json::parse(gpu).at("deviceVer");  // 900 for H100
    graph_->set_device_properties(properties).set_sm_version(version / 10);
  }

  // A tensor [batch, heads, rows, width]: rows are contiguous, `pitch` elements apart.
  struct Layout {
    std::int64_t batch, heads, rows, width, pitch, head_pitch;

    Sizes sizes() const { return {batch, heads, rows, width}; }
    Sizes strides() const { return {heads * head_pitch, head_pitch, pitch, 1}; }
  };

  Layout rows_of_queries(std::int64_t width) const {
    return {form_.batch, form_.heads, form_.queries, width, width, form_.queries * width};
  }

  Layout rows_of_keys(std::int64_t width) const {
    return {form_.batch, form_.key_heads, form_.keys, width, width, form_.key_rows * width};
  }

  Layout layout(Tensor tensor) const {
    const auto& f = form_;
    switch (tensor) {
      case Q:
      case DQ: return rows_of_queries(f.size);
      case Y:
      case DY: return rows_of_queries(f.value_size);
      case Lse: return rows_of_queries(1);
      case K:
      case DK: return rows_of_keys(f.size);
      case V:
      case DV: return rows_of_keys(f.value_size);
      case Bias:
      case DBias:
        return {f.bias_batch, f.bias_heads, f.bias_queries,
                f.keys,       f.key_rows,   f.bias_queries * f.key_rows};
      default: return {f.batch, 1, 1, 1, 1, 1};  // lengths
    }
  }

  void describe(fe::graph::Tensor_attributes& attributes, Tensor tensor) {
    const auto at = layout(tensor);
    attributes.set_uid(tensor + 1).set_dim(at.sizes()).set_stride(at.strides());
    if (tensor == Lse) attributes.set_data_type(fe::DataType_t::FLOAT);
    if (tensor == QueryLengths || tensor == KeyLengths)
      attributes.set_data_type(fe::DataType_t::INT32);
    tensors_.push_back(tensor);
  }

  GraphTensor input(Tensor tensor) {
    fe::graph::Tensor_attributes attributes;
    describe(attributes, tensor);
    return graph_->tensor(attributes);
  }

  void output(const GraphTensor& attributes, Tensor tensor) {
    attributes->set_output(true);
    describe(*attributes, tensor);
  }

  // The options of both operations.
  template <class Attributes>
  Attributes options(const char* name) {
    Attributes attributes;
    attributes.set_name(name).set_attn_scale(form_.scale);
    if (form_.cap != 0) {
      attributes.set_score_mod([this](Modified graph, GraphTensor scores) {
        return masked(graph, cap_.forward(graph, scores, cap_value_));
      });
    } else if (form_.band != Band::All) {
      attributes.set_diagonal_band_right_bound(0).set_diagonal_alignment(alignment());
      if (form_.window) attributes.set_diagonal_band_left_bound(int(form_.window));
    }
    if (form_.bias_batch) attributes.set_bias(input(Bias));
    if (form_.lengths)
      attributes.set_padding_mask(true)
          .set_seq_len_q(input(QueryLengths))
          .set_seq_len_kv(input(KeyLengths));
    return attributes;
  }

  fe::DiagonalAlignment_t alignment() const {
    return form_.band == Band::FromFirst ? fe::DiagonalAlignment_t::TOP_LEFT
                                         : fe::DiagonalAlignment_t::BOTTOM_RIGHT;
  }

  // Scores with the mask of the diagonal, which a graph with a cap has to build.
  GraphTensor masked(const Modified& graph, const GraphTensor& scores) const {
    if (form_.band == Band::All) return scores;
    std::optional<std::int64_t> left;
    if (form_.window) left = form_.window;
    return fe::graph::attn::score_modifiers::sliding_window_mask(
        graph, scores, alignment(), left, 0, form_.queries, form_.keys, nullptr, nullptr);
  }

  void attend() {
    auto attributes = options<fe::graph::SDPA_attributes>("attention");
    attributes.set_generate_stats(form_.lse != 0);
    const auto [y, lse] = graph_->sdpa(input(Q), input(K), input(V), attributes);
    output(y, Y);
    if (lse) output(lse, Lse);
  }

  void differentiate() {
    auto attributes = options<fe::graph::SDPA_backward_attributes>("gradient");
    if (form_.cap != 0)
      attributes.set_score_mod_bprop([this](Modified graph, GraphTensor gradients) {
        return cap_.backward(graph, gradients, cap_value_);
      });
    if (form_.dbias) {
      fe::graph::Tensor_attributes dbias;
      describe(dbias, DBias);
      attributes.set_dbias(graph_->tensor(dbias.set_output(true)));
    }
    const auto [dq, dk, dv] = graph_->sdpa_backward(input(Q), input(K), input(V), input(Y),
                                                    input(DY), input(Lse), attributes);
    output(dq, DQ);
    output(dk, DK);
    output(dv, DV);
  }

  const Form& form_;
  std::shared_ptr<fe::graph::Graph> graph_ = std::make_shared<fe::graph::Graph>();
  std::vector<Tensor> tensors_;
  fe::graph::attn::score_modifiers::Softcap cap_;
  GraphTensor cap_value_ = std::make_shared<fe::graph::Tensor_attributes>(form_.cap);
};

// The handle of the current device, one for all of its plans.
cudnnHandle_t handle_of_device() {
  static auto& handles = *new std::map<int, cudnnHandle_t>;
  int device = 0;
  if (fe::detail::cuda_get_device(&device) != cudaSuccess) throw std::runtime_error("no device");
  const std::lock_guard lock(mutex);
  auto& handle = handles[device];
  if (!handle && fe::detail::create_handle(&handle) != CUDNN_STATUS_SUCCESS)
    throw std::runtime_error("cuDNN cannot be initialised");
  return handle;
}

Plan* plan_of(const Form& form, const char* gpu, std::size_t& workspace_bytes) {
  if (!fe::cudnn_dlhandle)
    throw std::runtime_error("no libcudnn.so.9, expected it after: pip install 'tensoropt[cuda]'");
  const std::vector modes{fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK};
  Graph graph(form, gpu);
  const auto handle = gpu ? nullptr : handle_of_device();
  check(gpu ? graph.graph().build(modes) : graph.graph().build(handle, modes));
  std::int64_t bytes = 0;
  check(graph.graph().get_workspace_size(bytes));
  workspace_bytes = std::size_t(bytes);
  return new Plan(std::move(graph).plan(handle));
}

void run(const Plan& plan, void* stream, void* const* tensors, void* workspace) {
  std::unordered_map<std::int64_t, void*> pointers;
  for (const auto tensor : plan.tensors) pointers[tensor + 1] = tensors[tensor];
  const std::lock_guard lock(mutex);
  if (fe::detail::set_stream(plan.handle, static_cast<cudaStream_t>(stream)) !=
      CUDNN_STATUS_SUCCESS)
    throw std::runtime_error("cudnnSetStream failed");
  check(plan.graph->execute(plan.handle, pointers, workspace));
}

template <class Body>
const char* guarded(Body body) {
  thread_local std::string message;
  try {
    body();
    return nullptr;
  } catch (const std::exception& error) {
    message = error.what();
    for (auto& letter : message)
      if (letter == '\n') letter = ' ';
    return message.c_str();
  }
}

}  // namespace
}  // namespace tensoropt::cudnn

#define TENSOROPT_EXPORT __attribute__((visibility("default")))

TENSOROPT_EXPORT const char* tensoropt_cudnn_plan(const tensoropt::cudnn::Form* form,
                                                  const char* gpu, tensoropt::cudnn::Plan** plan,
                                                  std::size_t* workspace_bytes) {
  using namespace tensoropt::cudnn;
  return guarded([&] { *plan = plan_of(*form, gpu, *workspace_bytes); });
}

TENSOROPT_EXPORT const char* tensoropt_cudnn_run(tensoropt::cudnn::Plan* plan, void* stream,
                                                 void* const* tensors, void* workspace) {
  using namespace tensoropt::cudnn;
  return guarded([&] { run(*plan, stream, tensors, workspace); });
}
