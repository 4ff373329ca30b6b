#include "collective_op.hpp"

#include "kernel.hpp"
#include "ort/attributes.hpp"
#include "overlap/flights.hpp"
#include "signature.hpp"

namespace tensoropt {
namespace {

constexpr int kRequired = 0, kOptional = 1;  // OrtCustomOpInputOutputCharacteristic

void destroy(void* kernel) { delete static_cast<Kernel*>(kernel); }

OrtStatus* compute(void* kernel, OrtKernelContext* context) {
  auto* self = static_cast<Kernel*>(kernel);
  return guarded(self->api(), [&] { settling([&] { self->compute(context); }); });
}

template <Kind K, Place P>
OrtStatus* create(const CustomOp*, const OrtApi* table, const OrtKernelInfo* info, void** kernel) {
  const Api api(table);
  return guarded(api, [&] { *kernel = new Kernel(api, K, P, info); });
}

void infer_y(const Api& api, OrtShapeInferContext* context, Kind kind) {
  if (kind == Kind::Recv) {
    const auto node = read_shapes(api, context, kind);
    return set_output(api, context, 0, node.type, node.shape);
  }
  const auto [type, shape] = inferred_input(api, context, 0);
  if (is_known(shape))
    set_output(api, context, 0, type, read_shapes(api, context, kind).output_shape(shape));
}

// Properties that differ between kinds, as functions without captured state.
template <Kind K>
struct Ends {
  static constexpr auto kEnds = signature(K);

  static const char* name(const CustomOp*) { return kind_name(K); }
  static std::size_t inputs(const CustomOp*) { return kEnds.inputs(); }
  static std::size_t outputs(const CustomOp*) { return kEnds.outputs(); }

  static int input_type(const CustomOp*, std::size_t index) {
    return index == kEnds.token_in() ? int(Element::Int64) : kUndefined;
  }

  static int output_type(const CustomOp*, std::size_t index) {
    return index == kEnds.token_out() ? int(Element::Int64) : kUndefined;
  }

  // An unused token may be omitted, but not a node's only output.
  static int output_need(const CustomOp*, std::size_t index) {
    return kEnds.has_y && index == kEnds.token_out() ? kOptional : kRequired;
  }

  // The token output aliases the token input. ONNX Runtime passes both lists back for release.
  static std::size_t aliases(int** inputs, int** outputs) {
    static int in = int(kEnds.token_in()), out = int(kEnds.token_out());
    *inputs = &in;
    *outputs = &out;
    return 1;
  }

  static OrtStatus* infer_shapes(const CustomOp*, OrtShapeInferContext* context) {
    const Api api(registered_api);
    return guarded(api, [&] {
      if (kEnds.has_y) infer_y(api, context, K);
      set_output(api, context, kEnds.token_out(), int(Element::Int64), {1});
    });
  }
};

template <Kind K>
CustomOp op_of(Place place) {
  auto op = plain_op(place, Ends<K>::inputs, Ends<K>::outputs);
  op.GetName = Ends<K>::name;
  op.GetInputType = Ends<K>::input_type;
  op.GetOutputType = Ends<K>::output_type;
  op.GetOutputCharacteristic = Ends<K>::output_need;
  op.CreateKernelV2 = place == Place::Host ? create<K, Place::Host> : create<K, Place::Device>;
  run_kernel(op);
  op.InferOutputShapeFn = Ends<K>::infer_shapes;
  op.GetAliasMap = Ends<K>::aliases;
  op.ReleaseAliasMap = keep_aliases;
  return op;
}

}  // namespace

void run_kernel(CustomOp& op) {
  op.KernelDestroy = destroy;
  op.KernelComputeV2 = compute;
}

CustomOp collective_op(Kind kind, Place place) {
  switch (kind) {
    case Kind::AllReduce: return op_of<Kind::AllReduce>(place);
    case Kind::AllGather: return op_of<Kind::AllGather>(place);
    case Kind::ReduceScatter: return op_of<Kind::ReduceScatter>(place);
    case Kind::AllToAll: return op_of<Kind::AllToAll>(place);
    case Kind::CollectivePermute: return op_of<Kind::CollectivePermute>(place);
    case Kind::Broadcast: return op_of<Kind::Broadcast>(place);
    case Kind::Send: return op_of<Kind::Send>(place);
    default: return op_of<Kind::Recv>(place);
  }
}

}  // namespace tensoropt
