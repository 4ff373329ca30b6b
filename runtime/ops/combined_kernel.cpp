#include "combined_kernel.hpp"

namespace tensoropt {

CombinedKernel::CombinedKernel(const Api& api, const CollectiveOp& op, const OrtKernelInfo* info)
    : Kernel(api, op, info) {
  if (form_.has_dims()) located(node_, [&] { dims_ = api_.integers(info, "dims"); });
}

// A kind that can be combined cuts or joins along one dimension.
Collective CombinedKernel::collective(std::size_t number) const {
  auto node = collective_;
  if (form_.has_dims()) node.cut_dim = node.join_dim = dims_[number];
  return node;
}

void CombinedKernel::go(OrtKernelContext* context) {
  const auto& element = this->element(context);
  auto all = pieces(context, element);
  if (!has_met()) meet(describe(element, all));
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i].y = api_.output(context, i + 1, all[i].node.output_shape(all[i].shape));
  with_transport(context, element, bytes_of(all, element),
                 [&](Transport& transport) { run_combined(all, element, transport); });
  pass_token(context, 0, 0);
}

const ElementInfo& CombinedKernel::element(OrtKernelContext* context) const {
  return element_info(api_.type_and_shape(api_.input(context, 1)).first);
}

std::vector<Piece> CombinedKernel::pieces(OrtKernelContext* context,
                                          const ElementInfo& element) const {
  const auto count = api_.input_count(context) - 1;
  if (form_.has_dims() && dims_.size() != count)
    throw Error("dims must be one for each of " + std::to_string(count) +
                " inputs, got: " + text_of(dims_));
  std::vector<Piece> all;
  for (std::size_t i = 0; i < count; ++i) {
    const auto* x = api_.input(context, i + 1);
    auto [type, shape] = api_.type_and_shape(x);
    if (&element_info(type) != &element) throw Error("inputs must be of one element type");
    all.push_back({collective(i), std::move(shape), api_.data(x), nullptr});
  }
  return all;
}

std::string CombinedKernel::describe(const ElementInfo& element,
                                     const std::vector<Piece>& pieces) const {
  std::string text;
  for (const auto& piece : pieces) {
    piece.node.output_shape(piece.shape);  // throws before anything is sent
    text += (text.empty() ? "" : ", ") + piece.node.describe(element, piece.shape);
  }
  return text;
}

std::size_t bytes_of(const std::vector<Piece>& pieces, const ElementInfo& element) {
  std::size_t count = 0;
  for (const auto& piece : pieces) count += count_of(piece.shape);
  return count * element.bytes;
}

}  // namespace tensoropt
