// Two operators of a person's own domain: my.ops.Twice, and my.ops.RowSum along the last dimension.

#include "ort/custom_op.hpp"

#include <functional>
#include <numeric>

namespace tensoropt {
namespace {

constexpr int kFloat = 1;  // ONNX's number of float32

struct Kernel {
  Api api;
};

std::size_t one(const CustomOp*) { return 1; }
int float_type(const CustomOp*, std::size_t) { return kFloat; }
void destroy(void* kernel) { delete static_cast<Kernel*>(kernel); }

OrtStatus* create(const CustomOp*, const OrtApi* table, const OrtKernelInfo*, void** kernel) {
  *kernel = new Kernel{Api(table)};
  return nullptr;
}

OrtStatus* twice(void* kernel, OrtKernelContext* context) {
  const auto& api = static_cast<Kernel*>(kernel)->api;
  return guarded(api, [&] {
    const auto* x = api.input(context, 0);
    const auto shape = api.type_and_shape(x).second;
    const auto* from = static_cast<const float*>(api.data(x));
    auto* to = static_cast<float*>(api.output(context, 0, shape));
    const auto count =
        std::accumulate(shape.begin(), shape.end(), std::int64_t(1), std::multiplies<>());
    for (std::int64_t i = 0; i < count; ++i) to[i] = 2 * from[i];
  });
}

OrtStatus* row_sum(void* kernel, OrtKernelContext* context) {
  const auto& api = static_cast<Kernel*>(kernel)->api;
  return guarded(api, [&] {
    const auto* x = api.input(context, 0);
    const auto shape = api.type_and_shape(x).second;
    const auto* from = static_cast<const float*>(api.data(x));
    auto* to = static_cast<float*>(api.output(context, 0, {shape[0]}));
    for (std::int64_t i = 0; i < shape[0]; ++i) {
      to[i] = std::accumulate(from + i * shape[1], from + (i + 1) * shape[1], 0.0f);
    }
  });
}

template <OrtStatus* (*Compute)(void*, OrtKernelContext*)>
CustomOp make(const char* (*name)(const CustomOp*)) {
  auto op = plain_op(Place::Host, one, one);
  op.GetName = name;
  op.GetInputType = op.GetOutputType = float_type;
  op.CreateKernelV2 = create;
  op.KernelDestroy = destroy;
  op.KernelComputeV2 = Compute;
  return op;
}

}  // namespace
}  // namespace tensoropt

extern "C" __attribute__((visibility("default"))) tensoropt::OrtStatus* RegisterCustomOps(
    tensoropt::OrtSessionOptions* options, const tensoropt::OrtApiBase* base) {
  using namespace tensoropt;
  const Api api(base->GetApi(kApiVersion));
  static auto twice_op = make<twice>([](const CustomOp*) { return "Twice"; });
  static auto row_sum_op = make<row_sum>([](const CustomOp*) { return "RowSum"; });
  return guarded(api, [&] {
    static OrtCustomOpDomain* domain = nullptr;  // kept: sessions may outlive this call
    if (!domain) {
      api.call(Slot::CreateCustomOpDomain, "my.ops", &domain);
      for (auto* op : {&twice_op, &row_sum_op}) api.call(Slot::CustomOpDomain_Add, domain, op);
    }
    api.call(Slot::AddCustomOpDomain, options, domain);
  });
}
