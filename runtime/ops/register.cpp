// Entry point: registers domain `tensoropt` version 1 with a session's options.
#include "barrier.hpp"
#include "custom_op.hpp"
#include "kernel.hpp"

namespace tensoropt {
namespace {

constexpr int kRequired = 0, kOptional = 1;  // OrtCustomOpInputOutputCharacteristic

int type_at(const CustomOp *, std::size_t index) {
  return index == 0 ? kUndefined : int(Element::Int64);
}

std::size_t two(const CustomOp *) { return 2; }
int token_optional(const CustomOp *, std::size_t index) { return index ? kOptional : kRequired; }
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

template <Kind K>
OrtStatus *infer_shapes(const CustomOp *, OrtShapeInferContext *context) {
  const Api api(registered_api);
  return guarded(api, [&] {
    const auto [type, shape] = inferred_input(api, context, 0);
    if (!is_known(shape)) return;
    const auto node = shape_attributes<K>(api, context);
    set_output(api, context, 0, type, node.output_shape(shape));
    set_output(api, context, 1, int(Element::Int64), {1});
  });
}

template <Kind K>
CustomOp make_op() {
  auto op = plain_op(two, two);
  op.GetName = name<K>;
  op.GetInputType = op.GetOutputType = type_at;
  op.GetOutputCharacteristic = token_optional;
  op.CreateKernelV2 = create<K>;
  op.KernelDestroy = destroy;
  op.KernelComputeV2 = compute;
  op.InferOutputShapeFn = infer_shapes<K>;
  return op;
}

// Never released: sessions made from any options refer to it until they end.
OrtCustomOpDomain *make_domain(const Api &api) {
  static CustomOp ops[] = {make_op<Kind::AllReduce>(), make_op<Kind::AllGather>(),
                           make_op<Kind::ReduceScatter>(), make_op<Kind::AllToAll>(), barrier_op()};
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
