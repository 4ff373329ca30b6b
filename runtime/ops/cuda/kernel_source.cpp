#include "cuda/kernel_source.hpp"

namespace tensoropt {
namespace {

// Conversions. CUDA's device library has the ones of float16. A bfloat16 is rounded to the nearest
// even by integers, which all GPUs have.
constexpr const char* kConversions = R"(
extern "C" __device__ unsigned short __nv_float2half_rn(float);
extern "C" __device__ float __nv_half2float(unsigned short);
typedef unsigned short Half;

static __device__ float widen_float16(Half bits) { return __nv_half2float(bits); }
static __device__ Half round_float16(float value) { return __nv_float2half_rn(value); }
static __device__ float widen_bfloat16(Half bits) {
  return __uint_as_float((unsigned)bits << 16);
}
static __device__ Half round_bfloat16(float value) {
  const unsigned word = __float_as_uint(value);
  if ((word & 0x7fffffffu) > 0x7f800000u) return (Half)(word >> 16 | 0x40u);
  return (Half)((word + 0x7fffu + (word >> 16 & 1u)) >> 16);
}
)";

// The element of a broadcast array. Divisions of 64 bits take several times as long.
constexpr const char* kPlace = R"(
static __device__ unsigned long long place(unsigned long long at, unsigned long long divisor,
                                           unsigned long long modulus) {
  if (at >> 32 || divisor >> 32 || modulus >> 32) return at / divisor % modulus;
  return (unsigned)at / (unsigned)divisor % (unsigned)modulus;
}
)";

std::string named(std::string name, std::size_t number) {
  return name.append(std::to_string(number));
}

std::string type_of(Element element) { return element == Element::Float32 ? "float" : "Half"; }

// `value`, converted by a function called `verb` if the element is narrow.
std::string converted(const char* verb, Element element, const std::string& value) {
  if (element == Element::Float32) return value;
  return std::string(verb) + "_" + element_info(int(element)).name + "(" + value + ")";
}

class Source {
 public:
  explicit Source(const Program& program) : program_(program) {}

  std::string text() const {
    return std::string(kConversions) + kPlace + arguments() + R"(
extern "C" __global__ void elementwise(const Arguments to) {
  const unsigned long long first =
      (unsigned long long)blockIdx.x * blockDim.x * )" +
           std::to_string(kElementsPerThread) + R"( + threadIdx.x;
)" + loads() +
           steps() + "}\n";
  }

 private:
  std::string arguments() const {
    std::string text = "\nstruct Arguments {\n";
    for (std::size_t i = 0; i < program_.scalars; ++i)
      text += "  const float* " + named("scalar", i) + ";\n";
    for (std::size_t i = 0; i < program_.reads.size(); ++i)
      text += "  const " + type_of(program_.reads[i]) + "* " + named("read", i) + ";\n";
    for (std::size_t i = 0; i < program_.writes.size(); ++i)
      text += "  " + type_of(program_.writes[i]) + "* " + named("write", i) + ";\n";
    text += "  unsigned long long count;\n";
    for (std::size_t i = 0; i < program_.reads.size(); ++i)
      if (program_.broadcast[i])
        text += "  unsigned long long " + named("divisor", i) + ", " + named("modulus", i) + ";\n";
    return text + "};\n";
  }

  // All elements of a thread are loaded before any is stored, so that its loads overlap.
  std::string loads() const {
    std::string text;
    for (std::size_t i = 0; i < program_.scalars; ++i)
      text += "  const float " + named("v", i) + " = *to." + named("scalar", i) + ";\n";
    for (std::size_t i = 0; i < program_.reads.size(); ++i)
      text += "  float " + named("a", i) + "[" + std::to_string(kElementsPerThread) + "];\n";
    text += each();
    for (std::size_t i = 0; i < program_.reads.size(); ++i)
      text += "    " + named("a", i) + "[k] = " +
              converted("widen", program_.reads[i], "to." + named("read", i) + element(i)) + ";\n";
    return text + "  }\n";
  }

  // The index of an element of a read array.
  std::string element(std::size_t read) const {
    if (!program_.broadcast[read]) return "[at]";
    return "[place(at, to." + named("divisor", read) + ", to." + named("modulus", read) + ")]";
  }

  std::string steps() const {
    std::string text = each();
    for (std::size_t i = 0; i < program_.reads.size(); ++i)
      text +=
          "    const float " + named("v", program_.scalars + i) + " = " + named("a", i) + "[k];\n";
    for (const auto& pass : program_.passes)
      text += "    const float " + named("v", pass.made) + " = " + result(pass) + ";\n";
    for (std::size_t i = 0; i < program_.writes.size(); ++i)
      text += "    to." + named("write", i) +
              "[at] = " + converted("round", program_.writes[i], named("v", program_.results[i])) +
              ";\n";
    return text + "  }\n";
  }

  // The head of a loop over the elements of a thread; neighbouring threads have neighbouring
  // elements.
  static std::string each() {
    return R"(#pragma unroll
  for (int k = 0; k < )" +
           std::to_string(kElementsPerThread) + R"(; ++k) {
    const unsigned long long at = first + (unsigned long long)k * blockDim.x;
    if (at >= to.count) break;
)";
  }

  static std::string side(const Side& side) {
    const auto a = named("v", side.a);
    switch (side.form) {
      case Form::Value: return a;
      case Form::Product: return "(" + a + " * " + named("v", side.b) + ")";
      case Form::Root: return "sqrtf(" + a + ")";
    }
    return a;
  }

  static std::string result(const Pass& pass) {
    const auto left = side(pass.left), right = side(pass.right);
    switch (pass.kind) {
      case Arithmetic::Add: return left + " + " + right;
      case Arithmetic::Sub: return left + " - " + right;
      case Arithmetic::Mul: return left + " * " + right;
      case Arithmetic::Div: return left + " / " + right;
      case Arithmetic::Sqrt: return "sqrtf(" + left + ")";
      case Arithmetic::Gate: return right + " > 0.0f ? " + left + " : 0.0f";
      case Arithmetic::Neg: return "-" + left;
      case Arithmetic::Reciprocal: return "1.0f / " + left;
      case Arithmetic::Exp: return "expf(" + left + ")";
      case Arithmetic::Sigmoid: return "1.0f / (1.0f + expf(-" + left + "))";
      case Arithmetic::Tanh: return "tanhf(" + left + ")";
      case Arithmetic::Erf: return "erff(" + left + ")";
    }
    return left;
  }

  const Program& program_;
};

}  // namespace

std::string kernel_source(const Program& program) { return Source(program).text(); }

}  // namespace tensoropt
