#include "attention_node.hpp"

#include <cmath>

#include "collective.hpp"
#include "cuda/cuda_api.hpp"
#include "cudnn/plans.hpp"

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
  options.dropout.mix = integer("drop_mix");
  options.dropout.threshold = integer("drop_threshold");
  options.dropout.scale =
      optional<float>(api, Slot::KernelInfoGetAttribute_float, info, "drop_scale");
  if (!std::isfinite(options.dropout.scale))
    throw Error("drop_scale must be finite, got: " + std::to_string(options.dropout.scale));
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

void prepare(AttentionNode& self, const OrtKernelInfo* info) {
  cuda_device_count();
  require_cudnn();
  self.arena = arena_of(self.api, info);
}

OrtStatus* create(const CustomOp* op, const OrtApi* table, const OrtKernelInfo* info,
                  void** kernel) {
  const Api api(table);
  return guarded(api, [&] {
    const auto node = std::string(op->GetName(op)) + " node '" + api.node_name(info) + "'";
    located(node, [&] {
      auto self = std::make_unique<AttentionNode>(api, node, read_options(api, info));
      if (AttentionOp::of(op).place == Place::Device) prepare(*self, info);
      *kernel = self.release();
    });
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

// Throws if the tensor `name` is not of `type` and `shape`.
void check_tensor(const AttentionInput& input, const char* name, Element type, const Shape& shape) {
  if (input.type != type || input.shape != shape)
    throw Error(std::string(name) + " must be " + element_info(int(type)).name + " of shape " +
                text_of(shape) + ", got: " + element_info(int(input.type)).name + " of shape " +
                text_of(input.shape));
}

// Shapes of q, k, v and y: [batch, heads, tokens, size].
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

void* bias_gradient(const AttentionNode& self, OrtKernelContext* context,
                    const Attention& attention) {
  if (self.api.output_count(context) < 4) return nullptr;
  const auto& sizes = attention.bias_sizes;
  const Shape shape = {std::int64_t(sizes[0]), std::int64_t(sizes[1]), std::int64_t(sizes[2]),
                       std::int64_t(attention.keys)};
  auto* dbias = self.api.output(context, 3, shape);
  if (dbias && !attention.bias) throw Error("dbias needs the input bias");
  return dbias;
}

}  // namespace

AttentionInput attention_input(const Api& api, OrtKernelContext* context, std::size_t index) {
  if (index >= api.input_count(context)) return {};
  const auto* value = api.input(context, index);
  if (!value) return {};
  const auto [type, shape] = api.type_and_shape(value);
  return {Element(type), shape, api.data(value)};
}

Attention read_attention(const AttentionNode& self, OrtKernelContext* context, std::size_t first,
                         std::size_t first_option) {
  auto attention = self.options;
  const auto input = [&](std::size_t index) { return attention_input(self.api, context, index); };
  const auto q = input(first), k = input(first + 1), v = input(first + 2);
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
  const auto seeds = [&](const AttentionInput& input, const char* name, const Shape& shape) {
    if (input.data) check_tensor(input, name, Element::Int64, shape);
    return static_cast<const std::int64_t*>(input.data);
  };
  auto rows = query_shape(attention);
  rows[3] = 1;
  attention.dropout.rows = seeds(input(first_option + 3), "row_seeds", rows);
  attention.dropout.keys =
      seeds(input(first_option + 4), "key_seeds", {1, 1, 1, std::int64_t(attention.keys)});
  if (!attention.dropout.rows != !attention.dropout.keys)
    throw Error("row_seeds and key_seeds must both be present or both be omitted");
  return attention;
}

void* result(const AttentionNode& self, OrtKernelContext* context, const Attention& attention) {
  return self.api.output(context, 0, result_shape(attention));
}

float* lse_result(const AttentionNode& self, OrtKernelContext* context,
                  const Attention& attention) {
  if (self.api.output_count(context) < 2) return nullptr;
  return static_cast<float*>(self.api.output(context, 1, lse_shape(attention)));
}

AttentionGradients read_gradients(const AttentionNode& self, OrtKernelContext* context,
                                  const Attention& attention) {
  const auto input = [&](std::size_t index) { return attention_input(self.api, context, index); };
  const auto dy = input(0), y = input(4), lse = input(5);
  check_tensor(dy, "dy", attention.type, result_shape(attention));
  check_tensor(y, "y", attention.type, result_shape(attention));
  check_tensor(lse, "lse", Element::Float32, lse_shape(attention));
  return {dy.data,
          y.data,
          static_cast<const float*>(lse.data),
          self.api.output(context, 0, query_shape(attention)),
          self.api.output(context, 1, key_shape(attention)),
          self.api.output(context, 2, value_shape(attention)),
          bias_gradient(self, context, attention)};
}

AttentionOp attention_op_of(Place place, Element type, std::size_t (*inputs)(const CustomOp*),
                            std::size_t (*outputs)(const CustomOp*)) {
  AttentionOp op{plain_op(place, inputs, outputs), place, type};
  op.CreateKernelV2 = create;
  op.KernelDestroy = destroy;
  return op;
}

}  // namespace tensoropt
