#include "reduction.hpp"

#include <cmath>
#include <concepts>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>

#include "communicator.hpp"
#include "half.hpp"

namespace stand_in {
namespace {

using tensoropt::BFloat16;
using tensoropt::Float16;

constexpr struct {
  const char* name;
  std::size_t bytes;
} kElements[kTypes] = {{"int8", 1},    {"uint8", 1},    {"int32", 4},      {"uint32", 4},
                       {"int64", 8},   {"uint64", 8},   {"float16", 2},    {"float32", 4},
                       {"float64", 8}, {"bfloat16", 2}, {"float8e4m3", 1}, {"float8e5m2", 1}};

template <class T>
concept Narrow = std::same_as<T, Float16> || std::same_as<T, BFloat16>;

template <Op O, std::integral T>
T combine(T a, T b) {
  using Unsigned = std::make_unsigned_t<T>;  // signed overflow is undefined, a wrap is not
  if constexpr (O == Op::Sum) return T(Unsigned(Unsigned(a) + Unsigned(b)));
  // 64 bits: a product of smaller unsigned types would be made in int, which is signed.
  if constexpr (O == Op::Prod) return T(std::uint64_t(Unsigned(a)) * std::uint64_t(Unsigned(b)));
  if constexpr (O == Op::Max) return a > b ? a : b;
  if constexpr (O == Op::Min) return a < b ? a : b;
}

template <Op O, std::floating_point T>
T combine(T a, T b) {
  if constexpr (O == Op::Sum) return a + b;
  if constexpr (O == Op::Prod) return a * b;
  if constexpr (O == Op::Max) return std::fmax(a, b);
  if constexpr (O == Op::Min) return std::fmin(a, b);
}

template <Op O, Narrow T>
T combine(T a, T b) {
  return T::round(combine<O>(a.widen(), b.widen()));
}

template <class T, Op O>
void combine_all(void* in, void* inout, MPI_Count* count, MPI_Datatype*) {
  const T* a = static_cast<const T*>(in);
  T* b = static_cast<T*>(inout);
  for (MPI_Count i = 0; i < *count; ++i) b[i] = combine<O>(a[i], b[i]);
}

template <class T>
MPI_User_function_c* function_of(Op op) {
  switch (op) {
    case Op::Sum: return combine_all<T, Op::Sum>;
    case Op::Prod: return combine_all<T, Op::Prod>;
    case Op::Max: return combine_all<T, Op::Max>;
    case Op::Min: return combine_all<T, Op::Min>;
    default: return nullptr;
  }
}

MPI_User_function_c* function_of(Type type, Op op) {
  switch (type) {
    case Type::Int8: return function_of<std::int8_t>(op);
    case Type::UInt8: return function_of<std::uint8_t>(op);
    case Type::Int32: return function_of<std::int32_t>(op);
    case Type::UInt32: return function_of<std::uint32_t>(op);
    case Type::Int64: return function_of<std::int64_t>(op);
    case Type::UInt64: return function_of<std::uint64_t>(op);
    case Type::Float16: return function_of<Float16>(op);
    case Type::Float32: return function_of<float>(op);
    case Type::Float64: return function_of<double>(op);
    case Type::BFloat16: return function_of<BFloat16>(op);
    default: return nullptr;
  }
}

MPI_Op make_op(Type type, Op op) {
  auto* function = function_of(type, op);
  if (!function)
    throw Failure(Result::InvalidArgument,
                  std::string("the stand-in has no ") + name_of(op) + " of " + name_of(type));
  MPI_Op made = MPI_OP_NULL;
  const int commutes = 1;
  check_mpi("MPI_Op_create_c", MPI_Op_create_c(function, commutes, &made));
  return made;
}

}  // namespace

const char* name_of(Type type) { return kElements[int(type)].name; }

const char* name_of(Op op) {
  constexpr const char* kNames[kOps] = {"sum", "prod", "max", "min", "avg"};
  return kNames[int(op)];
}

std::size_t bytes_of(Type type) { return kElements[int(type)].bytes; }

MPI_Datatype mpi_type(Type type) {
  switch (bytes_of(type)) {
    case 1: return MPI_UINT8_T;
    case 2: return MPI_UINT16_T;
    case 4: return MPI_UINT32_T;
    default: return MPI_UINT64_T;
  }
}

MPI_Op mpi_op(Type type, Op op) {
  static std::mutex mutex;
  static std::map<std::pair<Type, Op>, MPI_Op> made;
  const std::lock_guard lock(mutex);
  const auto found = made.find({type, op});
  return found != made.end() ? found->second : made[{type, op}] = make_op(type, op);
}

}  // namespace stand_in
