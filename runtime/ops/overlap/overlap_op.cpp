#include "overlap/overlap_op.hpp"

#include <array>
#include <utility>

#include "collective_op.hpp"
#include "ort/attributes.hpp"
#include "overlap/wait_kernel.hpp"

namespace tensoropt {
namespace {

constexpr int kRequired = 0, kVariadic = 2;  // OrtCustomOpInputOutputCharacteristic

// The number of tensors per node that are declared to ONNX Runtime as possible aliases. Further
// tensors are copied.
constexpr std::size_t kMostShared = 1024;

std::string op_name(Startable what, const char* end) { return what.name() + end; }

// Pairs of (first input + i, first output + i).
template <int Input, int Output>
struct Pairs {
  std::array<int, kMostShared> inputs, outputs;

  Pairs() {
    for (std::size_t i = 0; i < kMostShared; ++i) {
      inputs[i] = Input + int(i);
      outputs[i] = Output + int(i);
    }
  }

  static std::size_t get(int** inputs, int** outputs) {
    static Pairs pairs;
    *inputs = pairs.inputs.data();
    *outputs = pairs.outputs.data();
    return kMostShared;
  }
};

std::size_t two(const CustomOp*) { return 2; }
std::size_t three(const CustomOp*) { return 3; }
std::size_t one(const CustomOp*) { return 1; }

// The first `Few` are single and int64, the rest is a variadic list.
template <std::size_t Few>
int type(const CustomOp*, std::size_t index) {
  return index < Few ? int(Element::Int64) : kUndefined;
}
template <std::size_t Few>
int need(const CustomOp*, std::size_t index) {
  return index < Few ? kRequired : kVariadic;
}

std::size_t input_count(const Api& api, OrtShapeInferContext* context) {
  std::size_t count = 0;
  api.call(Slot::ShapeInferContext_GetInputCount, context, &count);
  return count;
}

void infer_started(const Api& api, OrtShapeInferContext* context, Startable what) {
  for (const std::size_t output : {0, 1})
    set_output(api, context, output, int(Element::Int64), {1});
  Collective node{.kind = what.kind};
  if (what.combined) node.group = api.integers(context, "group");
  else node = read_shapes(api, context, what.kind);
  const bool has_dims = what.combined && what.kind != Kind::AllReduce;
  const auto dims = has_dims ? api.integers(context, "dims") : Shape{};
  for (std::size_t i = 1, inputs = input_count(api, context); i < inputs; ++i) {
    const auto [type, shape] = inferred_input(api, context, i);
    if (has_dims) node.dim = i <= dims.size() ? dims[i - 1] : -1;
    if (is_known(shape)) set_output(api, context, i + 1, type, node.output_shape(shape));
  }
}

void infer_waited(const Api& api, OrtShapeInferContext* context, Startable what) {
  const auto lists = input_count(api, context) - 1;
  for (std::size_t i = 0, count = what.is_in_place() ? lists : lists / 2; i < count; ++i) {
    const auto [type, shape] = inferred_input(api, context, i + 1);
    if (is_known(shape)) set_output(api, context, i, type, shape);
  }
}

// Properties that differ between startable collectives, as functions without captured state.
template <std::size_t I>
struct Of {
  static constexpr Startable kWhat = kStartable[I];

  static const char* start_name(const CustomOp*) {
    static const auto name = op_name(kWhat, "Start");
    return name.c_str();
  }

  static const char* wait_name(const CustomOp*) {
    static const auto name = op_name(kWhat, "Wait");
    return name.c_str();
  }

  template <Place P>
  static OrtStatus* create_start(const CustomOp*, const OrtApi* table, const OrtKernelInfo* info,
                                 void** kernel) {
    const Api api(table);
    return guarded(api,
                   [&] { *kernel = static_cast<Kernel*>(new StartKernel(api, kWhat, P, info)); });
  }

  template <Place P>
  static OrtStatus* create_wait(const CustomOp*, const OrtApi* table, const OrtKernelInfo* info,
                                void** kernel) {
    const Api api(table);
    return guarded(api, [&] { *kernel = new WaitKernel(api, kWhat, P, info); });
  }

  static OrtStatus* infer_start(const CustomOp*, OrtShapeInferContext* context) {
    const Api api(registered_api);
    return guarded(api, [&] { infer_started(api, context, kWhat); });
  }

  static OrtStatus* infer_wait(const CustomOp*, OrtShapeInferContext* context) {
    const Api api(registered_api);
    return guarded(api, [&] { infer_waited(api, context, kWhat); });
  }

  static CustomOp start(Place place) {
    auto op = plain_op(place, two, three);
    op.GetName = start_name;
    op.GetInputType = type<1>;
    op.GetInputCharacteristic = need<1>;
    op.GetOutputType = type<2>;
    op.GetOutputCharacteristic = need<2>;
    op.CreateKernelV2 =
        place == Place::Host ? create_start<Place::Host> : create_start<Place::Device>;
    run_kernel(op);
    op.InferOutputShapeFn = infer_start;
    alias_first(op);  // the token output aliases the token input
    if (kWhat.is_in_place()) {
      op.GetMayInplace = Pairs<1, 2>::get;
      op.ReleaseMayInplace = keep_aliases;
    }
    return op;
  }

  static CustomOp wait(Place place) {
    auto op = plain_op(place, two, one);
    op.GetName = wait_name;
    op.GetInputType = type<1>;
    op.GetInputCharacteristic = need<1>;
    op.GetOutputType = type<0>;
    op.GetOutputCharacteristic = need<0>;
    op.CreateKernelV2 =
        place == Place::Host ? create_wait<Place::Host> : create_wait<Place::Device>;
    run_wait_kernel(op);
    op.InferOutputShapeFn = infer_wait;
    op.GetAliasMap = Pairs<1, 0>::get;
    op.ReleaseAliasMap = keep_aliases;
    return op;
  }
};

template <std::size_t... I>
std::vector<CustomOp> all_ops(Place place, std::index_sequence<I...>) {
  return {Of<I>::start(place)..., Of<I>::wait(place)...};
}

}  // namespace

std::vector<CustomOp> overlap_ops(Place place) {
  return all_ops(place, std::make_index_sequence<std::size(kStartable)>());
}

}  // namespace tensoropt
