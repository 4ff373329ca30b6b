#include "convolution_op.hpp"

#include <algorithm>

#include "collective.hpp"
#include "cpu/convolution.hpp"
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
  bool transposed;
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

template <bool Transposed>
OrtStatus* create(const CustomOp*, const OrtApi* table, const OrtKernelInfo* info, void** kernel) {
  const Api api(table);
  return guarded(api, [&] {
    const std::string kind = Transposed ? "ConvTranspose" : "Conv";
    const auto node = kind + " node '" + api.node_name(info) + "'";
    located(node,
            [&] { *kernel = new ConvolutionNode{api, node, Transposed, read_windows(api, info)}; });
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

void convolve(const ConvolutionNode& self, OrtKernelContext* context) {
  const auto *x = self.api.input(context, 0), *w = self.api.input(context, 1);
  const auto from = self.api.type_and_shape(x).second, taps = self.api.type_and_shape(w).second;
  const auto& windows = self.windows;
  const auto to = result_shape(windows, from, taps, self.transposed);
  const auto slide = [&](std::size_t dim) {
    return Slide{taps[dim + 2], windows.strides[dim], windows.dilations[dim], windows.begins[dim]};
  };
  const ConvolutionParts parts({{from[0], from[1], from[2], from[3]},
                                {to[0], to[1], to[2], to[3]},
                                slide(0),
                                slide(1),
                                self.transposed});
  const auto* image = static_cast<const float*>(self.api.data(x));
  const auto* weights = static_cast<const float*>(self.api.data(w));
  auto* result = static_cast<float*>(self.api.output(context, 0, to));
  self.api.parallel(context, parts.count(),
                    [&](std::size_t part) { parts.run(part, image, weights, result); });
}

OrtStatus* compute(void* kernel, OrtKernelContext* context) {
  const auto& self = *static_cast<ConvolutionNode*>(kernel);
  return guarded(self.api, [&] { located(self.node, [&] { convolve(self, context); }); });
}

template <bool Transposed>
OrtStatus* infer_shapes(const CustomOp*, OrtShapeInferContext* context) {
  const Api api(registered_api);
  return guarded(api, [&] {
    const auto x = inferred_input(api, context, 0).second;
    const auto w = inferred_input(api, context, 1).second;
    if (is_known(x) && is_known(w))
      set_output(api, context, 0, int(Element::Float32),
                 result_shape(read_windows(api, context), x, w, Transposed));
  });
}

template <bool Transposed>
CustomOp op_of() {
  auto op = plain_op(Place::Host, two, one);
  op.GetName = [](const CustomOp*) { return Transposed ? "ConvTranspose" : "Conv"; };
  op.GetInputType = op.GetOutputType = float_type;
  op.CreateKernelV2 = create<Transposed>;
  op.KernelDestroy = destroy;
  op.KernelComputeV2 = compute;
  op.InferOutputShapeFn = infer_shapes<Transposed>;
  return op;
}

}  // namespace

CustomOp convolution_op(bool transposed) { return transposed ? op_of<true>() : op_of<false>(); }

}  // namespace tensoropt
