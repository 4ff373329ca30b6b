#include "collective_op.hpp"

#include "combined_kernel.hpp"
#include "kernel.hpp"

namespace tensoropt {
namespace {

const Kind& kind_of(const CustomOp* op) { return *CollectiveOp::of(op).form.kind; }

std::size_t inputs(const CustomOp* op) { return kind_of(op).token_in() + 1; }
std::size_t outputs(const CustomOp* op) { return kind_of(op).token_out() + 1; }

bool is_rows(const CustomOp* op, std::size_t index) { return kind_of(op).has_rows && index == 1; }

int input_type(const CustomOp* op, std::size_t index) {
  const bool is_int = index == kind_of(op).token_in() || is_rows(op, index);
  return is_int ? int(Element::Int64) : kUndefined;
}

int input_memory(const CustomOp* op, std::size_t index) {
  return is_rows(op, index) ? kHostMemory : kDefaultMemory;
}

int output_type(const CustomOp* op, std::size_t index) {
  return index == kind_of(op).token_out() ? int(Element::Int64) : kUndefined;
}

// An unused token may be omitted, but not a node's only output.
int output_need(const CustomOp* op, std::size_t index) {
  return index > 0 && index == kind_of(op).token_out() ? kOptional : kRequired;
}

void infer_y(const Api& api, OrtShapeInferContext* context, const Form& form) {
  if (!form.kind->has_x) {
    const auto node = read_shapes({api, context}, form);
    return set_output(api, context, 0, node.type, node.shape);
  }
  if (form.kind->has_rows) return;  // known at run time
  const auto [type, shape] = inferred_input(api, context, 0);
  if (is_known(shape))
    set_output(api, context, 0, type, read_shapes({api, context}, form).output_shape(shape));
}

void infer_single(const Api& api, OrtShapeInferContext* context, const Form& form) {
  if (form.kind->has_y) infer_y(api, context, form);
  set_output(api, context, form.kind->token_out(), int(Element::Int64), {1});
}

}  // namespace

CollectiveOp op_of(Form form, const char* end, Place place, std::size_t (*inputs)(const CustomOp*),
                   std::size_t (*outputs)(const CustomOp*)) {
  CollectiveOp op{plain_op(place, inputs, outputs), form, place, form.name() + end};
  op.GetName = [](const CustomOp* own) { return CollectiveOp::of(own).name.c_str(); };
  return op;
}

CollectiveOp single_op(const Kind& kind, Place place) {
  auto op = op_of({&kind, false}, "", place, inputs, outputs);
  op.GetInputType = input_type;
  op.GetInputMemoryType = input_memory;
  op.GetOutputType = output_type;
  op.GetOutputCharacteristic = output_need;
  run_kernel<Kernel>(op);
  infer_by<infer_single>(op);
  if (!kind.has_x) alias<0, 1>(op);
  else if (!kind.has_y) alias<1, 0>(op);
  else if (kind.has_rows) alias<2, 1>(op);
  else alias<1, 1>(op);  // the token output aliases the token input
  return op;
}

CollectiveOp combined_op(const Kind& kind, Place place) {
  auto op = list_op<1>({&kind, true}, "", place);
  run_kernel<CombinedKernel>(op);
  infer_by<infer_list<1>>(op);
  alias<0, 0>(op);  // the token output aliases the token input
  return op;
}

std::size_t input_count(const Api& api, OrtShapeInferContext* context) {
  std::size_t count = 0;
  api.call(Slot::ShapeInferContext_GetInputCount, context, &count);
  return count;
}

}  // namespace tensoropt
