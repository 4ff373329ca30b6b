#include "mpi/mpi_reduction.hpp"

#include <concepts>
#include <map>
#include <mutex>
#include <type_traits>
#include <utility>

#include "half.hpp"
#include "mpi/mpi_call.hpp"

namespace tensoropt {
namespace {

struct Boolean {
  std::uint8_t value;
};

template <class T>
concept Narrow = std::same_as<T, Float16> || std::same_as<T, BFloat16>;

template <Reduction R, class T>
T pick(T a, T b) {
  if constexpr (R == Reduction::Max) return (a > b || a != a) ? a : b;
  else return (a < b || a != a) ? a : b;
}

template <Reduction R, class T>
T combine(T a, T b) {
  if constexpr (Narrow<T>) {
    return T::round(combine<R>(a.widen(), b.widen()));
  } else if constexpr (std::same_as<T, Boolean>) {
    return {std::uint8_t(R == Reduction::Min ? a.value & b.value : a.value | b.value)};
  } else if constexpr (R != Reduction::Sum) {
    return pick<R>(a, b);
  } else if constexpr (std::integral<T>) {
    using Unsigned = std::make_unsigned_t<T>;  // signed overflow is undefined, unsigned wraps
    return T(Unsigned(Unsigned(a) + Unsigned(b)));
  } else {
    return a + b;
  }
}

template <class T, Reduction R>
void combine_all(void* in, void* inout, MPI_Count* count, MPI_Datatype*) {
  const T* __restrict a = static_cast<const T*>(in);
  T* __restrict b = static_cast<T*>(inout);
  for (MPI_Count i = 0; i < *count; ++i) b[i] = combine<R>(a[i], b[i]);
}

template <class T>
MPI_User_function_c* function_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::Sum: return combine_all<T, Reduction::Sum>;
    case Reduction::Max: return combine_all<T, Reduction::Max>;
    default: return combine_all<T, Reduction::Min>;
  }
}

MPI_User_function_c* function_of(Element element, Reduction reduction) {
  switch (element) {
    case Element::Float32: return function_of<float>(reduction);
    case Element::Float64: return function_of<double>(reduction);
    case Element::Float16: return function_of<Float16>(reduction);
    case Element::BFloat16: return function_of<BFloat16>(reduction);
    case Element::Int32: return function_of<std::int32_t>(reduction);
    case Element::Int64: return function_of<std::int64_t>(reduction);
    case Element::Int8: return function_of<std::int8_t>(reduction);
    case Element::UInt8: return function_of<std::uint8_t>(reduction);
    default: return function_of<Boolean>(reduction);
  }
}

MPI_Datatype type_of(std::size_t bytes) {
  switch (bytes) {
    case 1: return MPI_UINT8_T;
    case 2: return MPI_UINT16_T;
    case 4: return MPI_UINT32_T;
    default: return MPI_UINT64_T;
  }
}

MPI_Op make_op(Element element, Reduction reduction) {
  MPI_Op op = MPI_OP_NULL;
  const int commutes = 1;
  check_mpi("MPI_Op_create_c", MPI_Op_create_c(function_of(element, reduction), commutes, &op));
  return op;
}

}  // namespace

MpiReduction mpi_reduction(Element element, Reduction reduction) {
  static std::mutex mutex;
  static std::map<std::pair<Element, Reduction>, MPI_Op> made;
  const std::lock_guard lock(mutex);
  auto [entry, is_new] = made.try_emplace({element, reduction}, MPI_OP_NULL);
  if (is_new) entry->second = make_op(element, reduction);
  return {type_of(element_info(int(element)).bytes), entry->second};
}

}  // namespace tensoropt
