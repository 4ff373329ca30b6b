// Entry point: registers domain `tensoropt` version 1 with a session's options.
#include "attention_op.hpp"
#include "barrier.hpp"
#include "collective_op.hpp"
#include "convolution_op.hpp"
#include "elementwise_op.hpp"
#include "gemm_op.hpp"
#include "kinds.hpp"
#include "overlap/overlap_op.hpp"

namespace tensoropt {
namespace {

// Set in a session that runs device kernels on the CPU, with stand-ins for the libraries of CUDA
// and NCCL that use host memory: for machines without a GPU.
constexpr const char* kStandIn = "tensoropt.stand_in";

// ONNX Runtime refers to the ops by address.
struct Ops {
  std::vector<CollectiveOp> collectives;
  std::vector<AttentionOp> attentions;
  std::vector<CustomOp> others;
};

void append(Ops& ops, const Kind& kind, Place place) {
  auto& all = ops.collectives;
  all.push_back(single_op(kind, place));
  if (kind.run_packed) all.push_back(combined_op(kind, place));
  if (kind.overlap == Overlap::Never) return;
  for (const Form form : {Form{&kind, false}, Form{&kind, true}}) {
    if (form.combined && !kind.run_packed) continue;
    all.push_back(start_op(form, place));
    all.push_back(wait_op(form, place));
  }
}

void append(Ops& ops, Place place) {
  for (const auto* kind : all_kinds()) append(ops, *kind, place);
  ops.others.push_back(barrier_op(place));
  ops.others.push_back(elementwise_op(place));
}

void append_attention(Ops& ops, Place place, std::initializer_list<Element> types) {
  for (const auto type : types) {
    ops.attentions.push_back(attention_op(place, type));
    ops.attentions.push_back(attention_gradient_op(place, type));
  }
}

// The kernels of the CPU and of CUDA; ONNX Runtime selects by the placement of a node.
Ops ops_of_both() {
  Ops ops;
  append(ops, Place::Host);
  append(ops, Place::Device);
  for (const bool transposed : {false, true}) ops.others.push_back(convolution_op(transposed));
  ops.others.push_back(weight_gradient_op());
  ops.others.push_back(gemm_op());
  append_attention(ops, Place::Host, {Element::Float32, Element::BFloat16});
  append_attention(ops, Place::Device, {Element::Float16, Element::BFloat16});
  return ops;
}

Ops ops_standing_in() {
  Ops ops;
  append(ops, Place::Device);
  append_attention(ops, Place::Host, {Element::Float32});
  append_attention(ops, Place::Device, {Element::Float16, Element::BFloat16});
  const auto on_cpu = barrier_op(Place::Host).GetExecutionProviderType;
  for (auto& op : ops.collectives) op.GetExecutionProviderType = on_cpu;
  for (auto& op : ops.attentions) op.GetExecutionProviderType = on_cpu;
  for (auto& op : ops.others) op.GetExecutionProviderType = on_cpu;
  return ops;
}

// Never released, nor is `ops`: sessions created from any options refer to them until they end.
OrtCustomOpDomain* make_domain(const Api& api, const Ops& ops) {
  OrtCustomOpDomain* domain = nullptr;
  api.call(Slot::CreateCustomOpDomain, "tensoropt", &domain);
  const auto add = [&](const CustomOp& op) { api.call(Slot::CustomOpDomain_Add, domain, &op); };
  for (const auto& op : ops.collectives) add(op);
  for (const auto& op : ops.attentions) add(op);
  for (const auto& op : ops.others) add(op);
  return domain;
}

OrtCustomOpDomain* domain_of_both(const Api& api) {
  static const Ops ops = ops_of_both();
  static auto* domain = make_domain(api, ops);
  return domain;
}

OrtCustomOpDomain* domain_standing_in(const Api& api) {
  static const Ops ops = ops_standing_in();
  static auto* domain = make_domain(api, ops);
  return domain;
}

// ONNX Runtime prints an error if asked for a version that it does not have.
bool has_version(const OrtApiBase* base, std::uint32_t minor) {
  const std::string version = base->GetVersionString();  // "1.31.1"
  const auto dot = version.find('.');
  return dot != std::string::npos && std::strtoul(version.c_str() + dot + 1, nullptr, 10) >= minor;
}

}  // namespace
}  // namespace tensoropt

// NOLINTNEXTLINE(readability-identifier-naming): ONNX Runtime looks for this name
extern "C" __attribute__((visibility("default"))) tensoropt::OrtStatus* RegisterCustomOps(
    tensoropt::OrtSessionOptions* options, const tensoropt::OrtApiBase* base) {
  using namespace tensoropt;
  const auto* table = base->GetApi(kApiVersion);
  if (!table)
    return Api(base->GetApi(1))
        .status(std::string("tensoropt needs ONNX Runtime 1.") + std::to_string(kApiVersion) +
                " or later, got: " + base->GetVersionString());
  const Api api(table);
  return guarded(api, [&] {
    registered_api = table;
    if (has_version(base, kStatsApiVersion)) newer_api = base->GetApi(kStatsApiVersion);
    const bool stands_in =
        api.config_entry(static_cast<const OrtSessionOptions*>(options), kStandIn) == "1";
    auto* domain = stands_in ? domain_standing_in(api) : domain_of_both(api);
    api.call(Slot::AddCustomOpDomain, options, domain);
  });
}
