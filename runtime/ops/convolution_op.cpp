#include "convolution_op.hpp"

#include <algorithm>
#include <memory>

#include "collective.hpp"
#include "cpu/convolution.hpp"
#include "cpu/weight_gradient.hpp"
#include "element.hpp"

namespace tensoropt {
namespace {

// The attributes of a node.
struct Windows {
  Shape strides, dilations, begins, sizes;
};

struct ConvolutionNode {
  Api api;
  std::string node;
  Windows windows;
};

std::size_t one(const CustomOp*) { return 1; }
std::size_t two(const CustomOp*) { return 2; }
int float_type(const CustomOp*, std::size_t) { return int(Element::Float32); }
void destroy(void* kernel) { delete static_cast<ConvolutionNode*>(kernel); }

template <class Source>
Shape pair(const Api& api, Source* source, const char* name, std::int64_t least) {
  auto values = api.integers(source, name);
  if (values.size() == 2 && *std::min_element(values.begin(), values.end()) >= least) return values;
  throw Error(std::string(name) + " must be two numbers of at least " + std::to_string(least) +
              ", got: " + text_of(values));
}

template <class Source>
Windows read_windows(const Api& api, Source* source) {
  return {pair(api, source, "strides", 1), pair(api, source, "dilations", 1),
          pair(api, source, "pads", 0), pair(api, source, "sizes", 0)};
}

OrtStatus* create(const CustomOp* op, const OrtApi* table, const OrtKernelInfo* info,
                  void** kernel) {
  const Api api(table);
  return guarded(api, [&] {
    const auto node = std::string(op->GetName(op)) + " node '" + api.node_name(info) + "'";
    located(node, [&] { *kernel = new ConvolutionNode{api, node, read_windows(api, info)}; });
  });
}

void check(const Shape& x, const Shape& w, bool transposed) {
  if (x.size() == 4 && w.size() == 4 && x[1] == w[transposed ? 0 : 1]) return;
  throw Error("expected an image of four dimensions and weights of as many channels, got: " +
              text_of(x) + " and " + text_of(w));
}

Shape result_shape(const Windows& windows, const Shape& x, const Shape& w, bool transposed) {
  check(x, w, transposed);
  return {x[0], w[transposed ? 1 : 0], windows.sizes[0], windows.sizes[1]};
}

Image image_of(const Shape& shape) { return {shape[0], shape[1], shape[2], shape[3]}; }

// `taps` is the shape of the weights.
Convolution convolution_of(const Windows& windows, const Shape& x, const Shape& y,
                           const Shape& taps, bool transposed) {
  const auto slide = [&](std::size_t dim) {
    return Slide{taps[dim + 2], windows.strides[dim], windows.dilations[dim], windows.begins[dim]};
  };
  return {image_of(x), image_of(y), slide(0), slide(1), transposed};
}

// The operands of a kernel: two tensors of float32.
struct Operands {
  Operands(const Api& api, OrtKernelContext* context) {
    const auto *a = api.input(context, 0), *b = api.input(context, 1);
    first = static_cast<const float*>(api.data(a)), first_shape = api.type_and_shape(a).second;
    second = static_cast<const float*>(api.data(b)), second_shape = api.type_and_shape(b).second;
  }
  const float *first, *second;
  Shape first_shape, second_shape;
};

template <bool Transposed>
void convolve(const ConvolutionNode& self, OrtKernelContext* context) {
  const Operands given(self.api, context);
  const auto &x = given.first_shape, &w = given.second_shape;
  const auto y = result_shape(self.windows, x, w, Transposed);
  const ConvolutionParts parts(convolution_of(self.windows, x, y, w, Transposed));
  auto* result = static_cast<float*>(self.api.output(context, 0, y));
  self.api.parallel(context, parts.count(),
                    [&](std::size_t part) { parts.run(part, given.first, given.second, result); });
}

Shape weights_shape(const Windows& windows, const Shape& x, const Shape& dy) {
  if (x.size() != 4 || dy.size() != 4 || x[0] != dy[0])
    throw Error("expected as many images as gradients of four dimensions, got: " + text_of(x) +
                " and " + text_of(dy));
  return {dy[1], x[1], windows.sizes[0], windows.sizes[1]};
}

void sum_windows(const ConvolutionNode& self, OrtKernelContext* context) {
  const Operands given(self.api, context);
  const auto &x = given.first_shape, &dy = given.second_shape;
  const auto w = weights_shape(self.windows, x, dy);
  const WeightGradient gradient(convolution_of(self.windows, x, dy, w, false));
  auto* result = static_cast<float*>(self.api.output(context, 0, w));
  const std::unique_ptr<float[]> laid(new float[gradient.laid_size()]);
  self.api.parallel(context, gradient.images(),
                    [&](std::size_t image) { gradient.lay(image, given.first, laid.get()); });
  self.api.parallel(context, gradient.parts(), [&](std::size_t part) {
    gradient.run(part, laid.get(), given.second, result);
  });
}

template <void (*Body)(const ConvolutionNode&, OrtKernelContext*)>
OrtStatus* compute(void* kernel, OrtKernelContext* context) {
  const auto& self = *static_cast<ConvolutionNode*>(kernel);
  return guarded(self.api, [&] { located(self.node, [&] { Body(self, context); }); });
}

template <class ShapeOf>
OrtStatus* inferred(OrtShapeInferContext* context, const ShapeOf& shape_of) {
  const Api api(registered_api);
  return guarded(api, [&] {
    const auto first = inferred_input(api, context, 0).second;
    const auto second = inferred_input(api, context, 1).second;
    if (is_known(first) && is_known(second))
      set_output(api, context, 0, int(Element::Float32),
                 shape_of(read_windows(api, context), first, second));
  });
}

template <bool Transposed>
OrtStatus* infer_result(const CustomOp*, OrtShapeInferContext* context) {
  return inferred(context, [](const Windows& windows, const Shape& x, const Shape& w) {
    return result_shape(windows, x, w, Transposed);
  });
}

OrtStatus* infer_weights(const CustomOp*, OrtShapeInferContext* context) {
  return inferred(context, weights_shape);
}

CustomOp op_of_two() {
  auto op = plain_op(Place::Host, two, one);
  op.GetInputType = op.GetOutputType = float_type;
  op.CreateKernelV2 = create;
  op.KernelDestroy = destroy;
  return op;
}

template <bool Transposed>
CustomOp op_of() {
  auto op = op_of_two();
  op.GetName = [](const CustomOp*) { return Transposed ? "ConvTranspose" : "Conv"; };
  op.KernelComputeV2 = compute<convolve<Transposed>>;
  op.InferOutputShapeFn = infer_result<Transposed>;
  return op;
}

}  // namespace

CustomOp convolution_op(bool transposed) { return transposed ? op_of<true>() : op_of<false>(); }

CustomOp weight_gradient_op() {
  auto op = op_of_two();
  op.GetName = [](const CustomOp*) { return "ConvWeightGradient"; };
  op.KernelComputeV2 = compute<sum_windows>;
  op.InferOutputShapeFn = infer_weights;
  return op;
}

}  // namespace tensoropt
