#include "attention_node.hpp"

#include <cmath>

#include "collective.hpp"

namespace tensoropt {
namespace {

// The value of an attribute that a node may omit.
template <class Value>
Value optional(const Api& api, Slot slot, const OrtKernelInfo* info, const char* name) {
  Value value = 0;
  return api.tries(slot, info, name, &value) ? value : Value(0);
}

Attention read_options(const Api& api, const OrtKernelInfo* info) {
  const auto integer = [&](const char* name) {
    return optional<std::int64_t>(api, Slot::KernelInfoGetAttribute_int64, info, name);
  };
  Attention options;
  options.scale = api.real(info, "scale");
  options.cap = optional<float>(api, Slot::KernelInfoGetAttribute_float, info, "softcap");
  options.window = integer("window");
  const auto causal = integer("causal");
  options.causal = causal != 0;
  if (!std::isfinite(options.scale))
    throw Error("scale must be finite, got: " + std::to_string(options.scale));
  if (!(options.cap >= 0) || !std::isfinite(options.cap))
    throw Error("softcap must be 0 or more, got: " + std::to_string(options.cap));
  if (options.window < 0)
    throw Error("window must be 0 or more, got: " + std::to_string(options.window));
  if (causal != 0 && causal != 1)
    throw Error("causal must be 0 or 1, got: " + std::to_string(causal));
  return options;
}

OrtStatus* create(const CustomOp* op, const OrtApi* table, const OrtKernelInfo* info,
                  void** kernel) {
  const Api api(table);
  return guarded(api, [&] {
    const auto node = std::string(op->GetName(op)) + " node '" + api.node_name(info) + "'";
    located(node, [&] { *kernel = new AttentionNode{api, node, read_options(api, info)}; });
  });
}

void destroy(void* kernel) { delete static_cast<AttentionNode*>(kernel); }

void read_sizes(const Shape& q, const Shape& k, const Shape& v, Attention& attention) {
  const bool fits = q.size() == 4 && k.size() == 4 && v.size() == 4 && q[0] == k[0] &&
                    q[0] == v[0] && k[1] == v[1] && k[2] == v[2] && q[3] == k[3];
  if (!fits || (k[1] ? q[1] % k[1] != 0 : q[1] != 0))
    throw Error(
        "expected q [B, H, T, D], k [B, G, S, D] and v [B, G, S, E] with H a multiple of G, got: " +
        text_of(q) + ", " + text_of(k) + " and " + text_of(v));
  const auto size = [](std::int64_t number) { return std::size_t(number); };
  attention.batch = size(q[0]), attention.heads = size(q[1]), attention.key_heads = size(k[1]);
  attention.queries = size(q[2]), attention.keys = size(k[2]);
  attention.size = size(q[3]), attention.value_size = size(v[3]);
}

void read_bias(const AttentionInput& bias, Attention& attention) {
  if (!bias.data) return;
  const Shape full = {std::int64_t(attention.batch), std::int64_t(attention.heads),
                      std::int64_t(attention.queries), std::int64_t(attention.keys)};
  bool fits = bias.type == attention.type && bias.shape.size() == 4 && bias.shape[3] == full[3];
  for (std::size_t i = 0; fits && i < 3; ++i) {
    fits = bias.shape[i] == 1 || bias.shape[i] == full[i];
    attention.bias_sizes[i] = std::size_t(bias.shape[i]);
  }
  if (!fits)
    throw Error("bias must be " + std::string(element_info(int(attention.type)).name) +
                " of a shape that broadcasts to " + text_of(full) + ", with all keys, got: " +
                element_info(int(bias.type)).name + " of shape " + text_of(bias.shape));
  attention.bias = bias.data;
}

}  // namespace

AttentionInput attention_input(const Api& api, OrtKernelContext* context, std::size_t index) {
  if (index >= api.input_count(context)) return {};
  const auto* value = api.input(context, index);
  if (!value) return {};
  const auto [type, shape] = api.type_and_shape(value);
  return {Element(type), shape, api.data(value)};
}

void check_tensor(const AttentionInput& input, const char* name, Element type, const Shape& shape) {
  if (input.type != type || input.shape != shape)
    throw Error(std::string(name) + " must be " + element_info(int(type)).name + " of shape " +
                text_of(shape) + ", got: " + element_info(int(input.type)).name + " of shape " +
                text_of(input.shape));
}

Attention read_attention(const AttentionNode& self, OrtKernelContext* context, std::size_t first,
                         std::size_t first_option) {
  auto attention = self.options;
  const auto input = [&](std::size_t index) { return attention_input(self.api, context, index); };
  const auto q = input(first), k = input(first + 1), v = input(first + 2);
  if (q.type != Element::Float32 && q.type != Element::BFloat16)
    throw Error("q must be float32 or bfloat16, got: ONNX element type " +
                std::to_string(int(q.type)));
  attention.type = q.type;
  read_sizes(q.shape, k.shape, v.shape, attention);
  check_tensor(k, "k", q.type, k.shape);
  check_tensor(v, "v", q.type, v.shape);
  attention.q = q.data, attention.k = k.data, attention.v = v.data;
  read_bias(input(first_option), attention);
  if (const auto lengths = input(first_option + 1); lengths.data) {
    check_tensor(lengths, "lengths", Element::Int64, {std::int64_t(attention.batch)});
    attention.lengths = static_cast<const std::int64_t*>(lengths.data);
  }
  if (const auto offset = input(first_option + 2); offset.data) {
    check_tensor(offset, "offset", Element::Int64, {1});
    attention.offset = *static_cast<const std::int64_t*>(offset.data);
  }
  return attention;
}

Shape query_shape(const Attention& attention) {
  return {std::int64_t(attention.batch), std::int64_t(attention.heads),
          std::int64_t(attention.queries), std::int64_t(attention.size)};
}

Shape key_shape(const Attention& attention) {
  return {std::int64_t(attention.batch), std::int64_t(attention.key_heads),
          std::int64_t(attention.keys), std::int64_t(attention.size)};
}

Shape value_shape(const Attention& attention) {
  return {std::int64_t(attention.batch), std::int64_t(attention.key_heads),
          std::int64_t(attention.keys), std::int64_t(attention.value_size)};
}

Shape result_shape(const Attention& attention) {
  return {std::int64_t(attention.batch), std::int64_t(attention.heads),
          std::int64_t(attention.queries), std::int64_t(attention.value_size)};
}

Shape lse_shape(const Attention& attention) {
  return {std::int64_t(attention.batch), std::int64_t(attention.heads),
          std::int64_t(attention.queries)};
}

CustomOp attention_op_of(std::size_t (*inputs)(const CustomOp*),
                         std::size_t (*outputs)(const CustomOp*)) {
  auto op = plain_op(Place::Host, inputs, outputs);
  op.CreateKernelV2 = create;
  op.KernelDestroy = destroy;
  return op;
}

}  // namespace tensoropt
