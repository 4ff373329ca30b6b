// Entry point: registers domain `tensoropt` version 1 with a session's options.
#include <algorithm>

#include "kernel.hpp"

namespace tensoropt {
namespace {

constexpr int kRequired = 0, kOptional = 1;  // OrtCustomOpInputOutputCharacteristic
constexpr int kDefaultMemory = 0;            // OrtMemTypeDefault
constexpr int kMaxVersion = 0x7fffffff;

// Shape inference comes with no interface of its own, so the one registered with is kept.
const OrtApi *registered_api = nullptr;

int type_at(const CustomOp *, std::size_t index) {
  return index == 0 ? kUndefined : int(Element::Int64);
}

std::size_t two(const CustomOp *) { return 2; }
int one(const CustomOp *) { return 1; }
int last_version(const CustomOp *) { return kMaxVersion; }
int required(const CustomOp *, std::size_t) { return kRequired; }
int token_optional(const CustomOp *, std::size_t index) { return index ? kOptional : kRequired; }
int default_memory(const CustomOp *, std::size_t) { return kDefaultMemory; }
const char *cpu_provider(const CustomOp *) { return nullptr; }
void destroy(void *kernel) { delete static_cast<Kernel *>(kernel); }

OrtStatus *compute(void *kernel, OrtKernelContext *context) {
  auto *self = static_cast<Kernel *>(kernel);
  return guarded(self->api(), [&] { self->compute(context); });
}

template <Kind K>
const char *name(const CustomOp *) {
  return kind_name(K);
}

template <Kind K>
OrtStatus *create(const CustomOp *, const OrtApi *table, const OrtKernelInfo *info, void **kernel) {
  const Api api(table);
  return guarded(api, [&] { *kernel = new Kernel(api, K, info); });
}

template <Kind K>
Collective shape_attributes(const Api &api, OrtShapeInferContext *context) {
  Collective node{.kind = K, .group = {}};
  if constexpr (K == Kind::AllReduce) return node;
  node.group = api.integers(context, "group");
  if constexpr (K == Kind::AllToAll) {
    node.split_dim = api.integer(context, "split_dim");
    node.concat_dim = api.integer(context, "concat_dim");
  } else {
    node.dim = api.integer(context, "dim");
  }
  return node;
}

void set_output(const Api &api, OrtShapeInferContext *context, std::size_t index, int type,
                const Shape &shape) {
  OrtTensorInfo *info = nullptr;
  api.call(Slot::CreateTensorTypeAndShapeInfo, &info);
  try {
    api.call(Slot::SetTensorElementType, info, type);
    api.call(Slot::SetDimensions, info, shape.data(), shape.size());
    api.call(Slot::ShapeInferContext_SetOutputTypeShape, context, index,
             static_cast<const OrtTensorInfo *>(info));
  } catch (...) {
    api.raw<void>(Slot::ReleaseTensorTypeAndShapeInfo, info);
    throw;
  }
  api.raw<void>(Slot::ReleaseTensorTypeAndShapeInfo, info);
}

// ONNX Runtime shows a tensor of unknown rank as a scalar, and would take a -1 for a size.
bool is_known(const Shape &shape) {
  return !shape.empty() && *std::min_element(shape.begin(), shape.end()) >= 0;
}

template <Kind K>
OrtStatus *infer_shapes(const CustomOp *, OrtShapeInferContext *context) {
  const Api api(registered_api);
  return guarded(api, [&] {
    OrtTensorInfo *info = nullptr;  // owned by the context
    api.call(Slot::ShapeInferContext_GetInputTypeShape, context, std::size_t{0}, &info);
    const auto [type, shape] = api.type_and_shape(info);
    if (!is_known(shape)) return;
    const auto node = shape_attributes<K>(api, context);
    set_output(api, context, 0, type, node.output_shape(shape));
    set_output(api, context, 1, int(Element::Int64), {1});
  });
}

template <Kind K>
CustomOp make_op() {
  CustomOp op{};
  op.version = kApiVersion;
  op.GetName = name<K>;
  op.GetExecutionProviderType = cpu_provider;
  op.GetInputType = op.GetOutputType = type_at;
  op.GetInputTypeCount = op.GetOutputTypeCount = two;
  op.KernelDestroy = destroy;
  op.GetInputCharacteristic = required;
  op.GetOutputCharacteristic = token_optional;
  op.GetInputMemoryType = default_memory;
  op.GetVariadicInputMinArity = op.GetVariadicInputHomogeneity = one;
  op.GetVariadicOutputMinArity = op.GetVariadicOutputHomogeneity = one;
  op.CreateKernelV2 = create<K>;
  op.KernelComputeV2 = compute;
  op.InferOutputShapeFn = infer_shapes<K>;
  op.GetStartVersion = one;
  op.GetEndVersion = last_version;
  return op;
}

// Never released: sessions made from any options refer to it until they end.
OrtCustomOpDomain *make_domain(const Api &api) {
  static CustomOp ops[] = {make_op<Kind::AllReduce>(), make_op<Kind::AllGather>(),
                           make_op<Kind::ReduceScatter>(), make_op<Kind::AllToAll>()};
  OrtCustomOpDomain *domain = nullptr;
  api.call(Slot::CreateCustomOpDomain, "tensoropt", &domain);
  for (auto &op : ops) api.call(Slot::CustomOpDomain_Add, domain, const_cast<const CustomOp *>(&op));
  return domain;
}

}  // namespace
}  // namespace tensoropt

extern "C" __attribute__((visibility("default"))) tensoropt::OrtStatus *RegisterCustomOps(
    tensoropt::OrtSessionOptions *options, const tensoropt::OrtApiBase *base) {
  using namespace tensoropt;
  const auto *table = base->GetApi(kApiVersion);
  if (!table)
    return Api(base->GetApi(1)).status(std::string("tensoropt needs ONNX Runtime 1.") +
                                       std::to_string(kApiVersion) + " or later, got: " +
                                       base->GetVersionString());
  const Api api(table);
  return guarded(api, [&] {
    registered_api = table;
    static OrtCustomOpDomain *domain = make_domain(api);
    api.call(Slot::AddCustomOpDomain, options, domain);
  });
}
