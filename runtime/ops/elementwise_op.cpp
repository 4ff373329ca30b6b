#include "elementwise_op.hpp"

#include <algorithm>
#include <vector>

#include "collective.hpp"
#include "cpu/elementwise.hpp"
#include "cuda/compiled_kernel.hpp"
#include "cuda/kernel_source.hpp"
#include "ort/arena.hpp"

namespace tensoropt {
namespace {

constexpr int kVariadic = 2;                         // OrtCustomOpInputOutputCharacteristic
constexpr std::size_t kPart = std::size_t{1} << 16;  // elements

struct Elementwise {
  Api api;
  std::string node;
  Program program;
  const CompiledKernel* kernel = nullptr;  // on a GPU
};

std::size_t one(const CustomOp*) { return 1; }
int mixed(const CustomOp*) { return 0; }
int variadic(const CustomOp*, std::size_t) { return kVariadic; }
int any_type(const CustomOp*, std::size_t) { return kUndefined; }
const char* name(const CustomOp*) { return "Elementwise"; }
void destroy(void* kernel) { delete static_cast<Elementwise*>(kernel); }

template <class Source>
Program read_program(const Api& api, Source* source, std::int64_t arithmetics) {
  return checked_program(arithmetics, api.integer(source, "scalars"), api.integers(source, "reads"),
                         api.integers(source, "broadcast"), api.integers(source, "program"),
                         api.integers(source, "results"), api.integers(source, "writes"));
}

OrtStatus* create(const CustomOp*, const OrtApi* table, const OrtKernelInfo* info, void** kernel) {
  const Api api(table);
  return guarded(api, [&] {
    const std::string node = "Elementwise node '" + api.node_name(info) + "'";
    located(node, [&] {
      *kernel = new Elementwise{api, node, read_program(api, info, kCpuArithmetics)};
    });
  });
}

OrtStatus* create_on_device(const CustomOp*, const OrtApi* table, const OrtKernelInfo* info,
                            void** kernel) {
  const Api api(table);
  return guarded(api, [&] {
    const std::string node = "Elementwise node '" + api.node_name(info) + "'";
    located(node, [&] {
      const auto program = read_program(api, info, kArithmetics);
      const int device = arena_of(api, info)->device();
      *kernel = new Elementwise{api, node, program,
                                &compiled_kernel(kernel_source(program), "elementwise", device)};
    });
  });
}

std::vector<const float*> scalars_of(const Elementwise& self, OrtKernelContext* context) {
  std::vector<const float*> scalars;
  for (std::size_t i = 0; i < self.program.scalars; ++i) {
    const auto* value = self.api.input(context, i);
    const auto [type, shape] = self.api.type_and_shape(value);
    if (Element(type) != Element::Float32 || count_of(shape) != 1)
      throw Error("input " + std::to_string(i) + " must be one float32, got: ONNX element type " +
                  std::to_string(type) + " of shape " + text_of(shape));
    scalars.push_back(static_cast<const float*>(self.api.data(value)));
  }
  return scalars;
}

// Element `at` of the results reads element `at / divisor % modulus` of a broadcast array.
struct Broadcast {
  std::uint64_t divisor = 1, modulus = 1;
};

// Throws unless the dimensions that an array shares with the results are neighbours.
Broadcast broadcast_of(Shape shape, const Shape& whole) {
  const auto text = text_of(shape);
  if (shape.size() <= whole.size()) {
    shape.insert(shape.begin(), whole.size() - shape.size(), 1);
    Broadcast result;
    auto dim = whole.size();
    for (; dim > 0 && shape[dim - 1] == 1; --dim) result.divisor *= std::uint64_t(whole[dim - 1]);
    for (; dim > 0 && shape[dim - 1] == whole[dim - 1]; --dim)
      result.modulus *= std::uint64_t(whole[dim - 1]);
    if (std::all_of(shape.begin(), shape.begin() + std::ptrdiff_t(dim),
                    [](auto size) { return size == 1; }))
      return result;
  }
  throw Error("expected an array that is broadcast to " + text_of(whole) +
              " by neighbouring dimensions, got: " + text);
}

const void* array(const Elementwise& self, const OrtValue* value, std::size_t index,
                  const Shape& wanted) {
  const auto [type, shape] = self.api.type_and_shape(value);
  const auto element = self.program.reads[index];
  const bool fits = self.program.broadcast[index] || shape == wanted;
  if (Element(type) == element && fits) return self.api.data(value);
  throw Error("array " + std::to_string(index) + " of a piece must be " +
              element_info(int(element)).name + " of shape " + text_of(wanted) +
              ", got: ONNX element type " + std::to_string(type) + " of shape " + text_of(shape));
}

// The arrays of one piece, all with `count` elements.
struct Piece {
  std::vector<const void*> reads;
  std::vector<void*> writes;
  std::vector<Broadcast> broadcast;  // of the arrays that are
  std::size_t count;
};

Piece piece_of(const Elementwise& self, OrtKernelContext* context, std::size_t number) {
  const auto& program = self.program;
  const auto first = program.scalars + number * program.reads.size();
  const auto* whole = self.api.input(context, first + program.whole());
  const auto shape = self.api.type_and_shape(whole).second;
  Piece piece{{}, {}, {}, count_of(shape)};
  for (std::size_t i = 0; i < program.reads.size(); ++i) {
    const auto* value = self.api.input(context, first + i);
    piece.reads.push_back(array(self, value, i, shape));
    if (program.broadcast[i])
      piece.broadcast.push_back(broadcast_of(self.api.type_and_shape(value).second, shape));
  }
  for (std::size_t i = 0; i < program.writes.size(); ++i)
    piece.writes.push_back(self.api.output(context, number * program.writes.size() + i, shape));
  return piece;
}

std::size_t piece_count(const Elementwise& self, OrtKernelContext* context) {
  const auto& program = self.program;
  const auto inputs = self.api.input_count(context), outputs = self.api.output_count(context);
  const auto pieces = outputs / program.writes.size();
  if (inputs == program.scalars + pieces * program.reads.size() &&
      outputs == pieces * program.writes.size())
    return pieces;
  throw Error("expected " + std::to_string(program.scalars) + " scalars, and for every " +
              std::to_string(program.writes.size()) + " outputs " +
              std::to_string(program.reads.size()) + " arrays, got: " + std::to_string(inputs) +
              " inputs and " + std::to_string(outputs) + " outputs");
}

std::vector<Piece> pieces_of(const Elementwise& self, OrtKernelContext* context) {
  std::vector<Piece> pieces;
  for (std::size_t i = 0, count = piece_count(self, context); i < count; ++i)
    pieces.push_back(piece_of(self, context, i));
  return pieces;
}

// A unit of work for one thread.
struct Part {
  const Piece* piece;
  std::size_t from;
};

void run_all(const Elementwise& self, OrtKernelContext* context) {
  std::vector<float> scalars;
  for (const auto* scalar : scalars_of(self, context)) scalars.push_back(*scalar);
  const auto pieces = pieces_of(self, context);
  std::vector<Part> parts;
  for (const auto& piece : pieces)
    for (std::size_t from = 0; from < piece.count; from += kPart) parts.push_back({&piece, from});
  self.api.parallel(context, parts.size(), [&](std::size_t i) {
    const auto& [piece, from] = parts[i];
    run_program(self.program, scalars.data(), piece->reads.data(), piece->writes.data(), from,
                std::min(from + kPart, piece->count));
  });
}

// A launch per piece: the addresses, and the number of elements.
void launch_all(const Elementwise& self, OrtKernelContext* context) {
  const auto scalars = scalars_of(self, context);
  for (const auto& piece : pieces_of(self, context)) {
    if (!piece.count) continue;
    std::vector<std::uint64_t> words;
    for (const auto* at : scalars) words.push_back(reinterpret_cast<std::uintptr_t>(at));
    for (const auto* at : piece.reads) words.push_back(reinterpret_cast<std::uintptr_t>(at));
    for (const auto* at : piece.writes) words.push_back(reinterpret_cast<std::uintptr_t>(at));
    words.push_back(piece.count);
    for (const auto& [divisor, modulus] : piece.broadcast)
      words.insert(words.end(), {divisor, modulus});
    constexpr std::size_t kPerBlock = std::size_t{kElementsPerThread} * kThreadsPerBlock;
    void* arguments[] = {words.data()};
    self.kernel->launch(unsigned((piece.count + kPerBlock - 1) / kPerBlock), kThreadsPerBlock,
                        arguments, self.api.stream(context));
  }
}

OrtStatus* compute_on_device(void* kernel, OrtKernelContext* context) {
  const auto& self = *static_cast<Elementwise*>(kernel);
  return guarded(self.api, [&] { located(self.node, [&] { launch_all(self, context); }); });
}

OrtStatus* compute(void* kernel, OrtKernelContext* context) {
  const auto& self = *static_cast<Elementwise*>(kernel);
  return guarded(self.api, [&] { located(self.node, [&] { run_all(self, context); }); });
}

OrtStatus* infer_shapes(const CustomOp*, OrtShapeInferContext* context) {
  const Api api(registered_api);
  return guarded(api, [&] {
    const auto program = read_program(api, context, kArithmetics);
    std::size_t inputs = 0;
    api.call(Slot::ShapeInferContext_GetInputCount, context, &inputs);
    const auto pieces = (inputs - program.scalars) / program.reads.size();
    for (std::size_t piece = 0; piece < pieces; ++piece) {
      const auto first = program.scalars + piece * program.reads.size();
      const auto shape = inferred_input(api, context, first + program.whole()).second;
      for (std::size_t i = 0; i < program.writes.size(); ++i)
        set_output(api, context, piece * program.writes.size() + i, int(program.writes[i]), shape);
    }
  });
}

}  // namespace

CustomOp elementwise_op(Place place) {
  auto op = plain_op(place, one, one);
  op.GetName = name;
  op.GetInputType = op.GetOutputType = any_type;
  op.GetInputCharacteristic = op.GetOutputCharacteristic = variadic;
  op.GetVariadicInputHomogeneity = op.GetVariadicOutputHomogeneity = mixed;
  op.CreateKernelV2 = place == Place::Host ? create : create_on_device;
  op.KernelDestroy = destroy;
  op.KernelComputeV2 = place == Place::Host ? compute : compute_on_device;
  op.InferOutputShapeFn = infer_shapes;
  return op;
}

}  // namespace tensoropt
