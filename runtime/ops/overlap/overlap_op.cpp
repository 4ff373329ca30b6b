#include "overlap/overlap_op.hpp"

#include <array>

#include "overlap/start_kernel.hpp"
#include "overlap/wait_kernel.hpp"

namespace tensoropt {
namespace {

// The number of tensors per node that are declared to ONNX Runtime as possible aliases. Further
// tensors are copied.
constexpr std::size_t kMostShared = 1024;

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

void infer_waited(const Api& api, OrtShapeInferContext* context, const Form& form) {
  const auto lists = input_count(api, context) - 1;
  const auto count = form.kind->overlap == Overlap::ReadsX ? lists / 2 : lists;
  for (std::size_t i = 0; i < count; ++i) {
    const auto [type, shape] = inferred_input(api, context, i + 1);
    if (is_known(shape)) set_output(api, context, i, type, shape);
  }
}

}  // namespace

CollectiveOp start_op(Form form, Place place) {
  auto op = list_op<2>(form, "Start", place);
  run_kernel<StartKernel>(op);
  infer_by<infer_list<2>>(op);
  alias<0, 0>(op);  // the token output aliases the token input
  if (form.kind->overlap == Overlap::InPlace) {
    op.GetMayInplace = Pairs<1, 2>::get;
    op.ReleaseMayInplace = keep_aliases;
  }
  return op;
}

CollectiveOp wait_op(Form form, Place place) {
  auto op = list_op<0>(form, "Wait", place);
  run_kernel<WaitKernel>(op);
  infer_by<infer_waited>(op);
  op.GetAliasMap = Pairs<1, 0>::get;
  op.ReleaseAliasMap = keep_aliases;
  return op;
}

}  // namespace tensoropt
