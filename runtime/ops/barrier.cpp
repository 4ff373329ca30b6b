#include "barrier.hpp"

#include <cstring>
#include <functional>
#include <numeric>

#include "custom_op.hpp"
#include "element.hpp"

namespace tensoropt {
namespace {

struct Barrier {
  Api api;
  std::string name;
};

std::size_t one(const CustomOp *) { return 1; }
std::size_t two(const CustomOp *) { return 2; }
int any_type(const CustomOp *, std::size_t) { return kUndefined; }
const char *name(const CustomOp *) { return "Barrier"; }
void destroy(void *kernel) { delete static_cast<Barrier *>(kernel); }

OrtStatus *create(const CustomOp *, const OrtApi *table, const OrtKernelInfo *info, void **kernel) {
  const Api api(table);
  return guarded(api, [&] { *kernel = new Barrier{api, api.node_name(info)}; });
}

std::size_t bytes_of(int type, const Shape &shape) {
  return std::accumulate(shape.begin(), shape.end(), element_info(type).bytes, std::multiplies<>());
}

void copy(const Barrier &self, OrtKernelContext *context) try {
  const auto *x = self.api.input(context, 0);
  const auto [type, shape] = self.api.type_and_shape(x);
  const auto bytes = bytes_of(type, shape);
  const void *from = self.api.data(x);
  void *to = self.api.output(context, 0, shape);
  if (to != from && bytes) std::memcpy(to, from, bytes);
} catch (const std::exception &error) {
  throw Error("Barrier node '" + self.name + "': " + error.what());
}

OrtStatus *compute(void *kernel, OrtKernelContext *context) {
  const auto &self = *static_cast<Barrier *>(kernel);
  return guarded(self.api, [&] { copy(self, context); });
}

OrtStatus *infer_shapes(const CustomOp *, OrtShapeInferContext *context) {
  const Api api(registered_api);
  return guarded(api, [&] {
    // A scalar must be typed here too. It is one: steps have no tensor of unknown rank.
    const auto [type, shape] = inferred_input(api, context, 0);
    if (shape.empty() || is_known(shape)) set_output(api, context, 0, type, shape);
  });
}

// Input 0 is output 0. ONNX Runtime gives both lists back to `release`.
std::size_t aliases(int **inputs, int **outputs) {
  static int first = 0;
  *inputs = *outputs = &first;
  return 1;
}

void release(int *, int *) {}

}  // namespace

CustomOp barrier_op() {
  auto op = plain_op(two, one);
  op.GetName = name;
  op.GetInputType = op.GetOutputType = any_type;
  op.CreateKernelV2 = create;
  op.KernelDestroy = destroy;
  op.KernelComputeV2 = compute;
  op.InferOutputShapeFn = infer_shapes;
  op.GetAliasMap = aliases;
  op.ReleaseAliasMap = release;
  return op;
}

}  // namespace tensoropt
