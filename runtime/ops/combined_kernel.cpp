#include "combined_kernel.hpp"

#include "ort/attributes.hpp"
#include "progress.hpp"

namespace tensoropt {

const char* combined_name(Kind kind) {
  switch (kind) {
    case Kind::AllReduce: return "CombinedAllReduce";
    case Kind::AllGather: return "CombinedAllGather";
    default: return "CombinedReduceScatter";
  }
}

CombinedKernel::CombinedKernel(const Api& api, Kind kind, Place place, const OrtKernelInfo* info)
    : Kernel(api, place,
             lasting(std::string(combined_name(kind)) + " node '" + api.node_name(info) + "'"),
             kind) {
  located(node_, [&] { prepare_all(info); });
}

void CombinedKernel::prepare_all(const OrtKernelInfo* info) {
  if (collective_.kind != Kind::AllReduce) dims_ = api_.integers(info, "dims");
  prepare(info, read_combined(api_, info, collective_.kind));
}

Collective CombinedKernel::collective(std::size_t number) const {
  auto node = collective_;
  if (node.kind != Kind::AllReduce) node.dim = dims_[number];
  return node;
}

void CombinedKernel::go(OrtKernelContext* context) {
  const auto count = api_.input_count(context) - 1;
  if (collective_.kind != Kind::AllReduce && dims_.size() != count)
    throw Error("dims must be one for each of " + std::to_string(count) +
                " inputs, got: " + text_of(dims_));
  const auto& element = element_info(api_.type_and_shape(api_.input(context, 1)).first);
  auto all = pieces(context, element);
  if (!has_met()) meet(describe(element, all));
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i].y = api_.output(context, i + 1, all[i].node.output_shape(all[i].shape));
  with_transport(context, element, [&](Transport& transport) {
    run_combined(all, element, transport);
    pass_token(context, 0, 0, transport);
  });
}

std::vector<Piece> CombinedKernel::pieces(OrtKernelContext* context,
                                          const ElementInfo& element) const {
  std::vector<Piece> all;
  for (std::size_t i = 1; i < api_.input_count(context); ++i) {
    const auto* x = api_.input(context, i);
    auto [type, shape] = api_.type_and_shape(x);
    if (&element_info(type) != &element) throw Error("inputs must be of one element type");
    all.push_back({collective(i - 1), std::move(shape), api_.data(x), nullptr});
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

}  // namespace tensoropt
