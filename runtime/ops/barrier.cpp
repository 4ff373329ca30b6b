#include "barrier.hpp"

#include <cstring>

#include "collective.hpp"
#include "cuda/cuda_api.hpp"

namespace tensoropt {
namespace {

struct Barrier {
  Api api;
  Place place;
  std::string node;
};

std::size_t one(const CustomOp*) { return 1; }
std::size_t two(const CustomOp*) { return 2; }
int any_type(const CustomOp*, std::size_t) { return kUndefined; }
const char* name(const CustomOp*) { return "Barrier"; }
void destroy(void* kernel) { delete static_cast<Barrier*>(kernel); }

template <Place P>
OrtStatus* create(const CustomOp*, const OrtApi* table, const OrtKernelInfo* info, void** kernel) {
  const Api api(table);
  return guarded(api, [&] {
    const std::string node = "Barrier node '" + api.node_name(info) + "'";
    if (P == Place::Device) located(node, cuda_device_count);
    *kernel = new Barrier{api, P, node};
  });
}

void copy(const Barrier& self, OrtKernelContext* context) {
  const auto* x = self.api.input(context, 0);
  const auto [type, shape] = self.api.type_and_shape(x);
  const auto bytes = count_of(shape) * element_info(type).bytes;
  const void* from = self.api.data(x);
  void* to = self.api.output(context, 0, shape);
  if (to == from || !bytes) return;
  if (self.place == Place::Host) std::memcpy(to, from, bytes);
  else copy_on_device(from, to, bytes, self.api.stream(context));
}

OrtStatus* compute(void* kernel, OrtKernelContext* context) {
  const auto& self = *static_cast<Barrier*>(kernel);
  return guarded(self.api, [&] { located(self.node, [&] { copy(self, context); }); });
}

OrtStatus* infer_shapes(const CustomOp*, OrtShapeInferContext* context) {
  const Api api(registered_api);
  return guarded(api, [&] {
    // A scalar is typed here, too. An empty shape is a scalar: steps have no unknown ranks.
    const auto [type, shape] = inferred_input(api, context, 0);
    if (shape.empty() || is_known(shape)) set_output(api, context, 0, type, shape);
  });
}

}  // namespace

CustomOp barrier_op(Place place) {
  auto op = plain_op(place, two, one);
  op.GetName = name;
  op.GetInputType = op.GetOutputType = any_type;
  op.CreateKernelV2 = place == Place::Host ? create<Place::Host> : create<Place::Device>;
  op.KernelDestroy = destroy;
  op.KernelComputeV2 = compute;
  op.InferOutputShapeFn = infer_shapes;
  alias<0, 0>(op);
  return op;
}

}  // namespace tensoropt
