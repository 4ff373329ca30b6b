// Compiled only if CMake finds nccl.h and the CUDA headers: checks our declarations against them.
#include <nccl.h>

#include <type_traits>

#include "cuda/cuda_api.hpp"
#include "cuda/nccl_api.hpp"

namespace {

using tensoropt::CudaApi;
using tensoropt::NcclApi;
using tensoropt::NcclOp;
using tensoropt::NcclType;

// Enumerations are declared as int, handles as void pointers.
template <class Ours, class Theirs>
constexpr bool kAlike =
    sizeof(Ours) == sizeof(Theirs) && std::is_pointer_v<Ours> == std::is_pointer_v<Theirs> &&
    std::is_class_v<Ours> == std::is_class_v<Theirs>;

template <class Ours, class Theirs>
constexpr bool kSame = false;

template <class R, class... Args, class S, class... Others>
constexpr bool kSame<R (*)(Args...), S (*)(Others...)> = [] {
  if constexpr (sizeof...(Args) != sizeof...(Others)) return false;
  else return kAlike<R, S> && (kAlike<Args, Others> && ...);
}();

#define CHECK_CUDA(name, ...) \
  static_assert(kSame<decltype(CudaApi::name), decltype(&::name)>, #name);
TENSOROPT_CUDA_FUNCTIONS(CHECK_CUDA)
CHECK_CUDA(cudaGetErrorString)

#define CHECK_NCCL(name, ...) \
  static_assert(kSame<decltype(NcclApi::name), decltype(&::name)>, #name);
TENSOROPT_NCCL_FUNCTIONS(CHECK_NCCL)
CHECK_NCCL(ncclGetErrorString)
CHECK_NCCL(ncclGetLastError)

#define CHECK_VALUE(ours, theirs) static_assert(int(ours) == int(theirs), #theirs)
CHECK_VALUE(NcclType::Int8, ncclInt8);
CHECK_VALUE(NcclType::UInt8, ncclUint8);
CHECK_VALUE(NcclType::Int32, ncclInt32);
CHECK_VALUE(NcclType::Int64, ncclInt64);
CHECK_VALUE(NcclType::Float16, ncclFloat16);
CHECK_VALUE(NcclType::Float32, ncclFloat32);
CHECK_VALUE(NcclType::Float64, ncclFloat64);
CHECK_VALUE(NcclType::BFloat16, ncclBfloat16);
CHECK_VALUE(NcclOp::Sum, ncclSum);
CHECK_VALUE(NcclOp::Max, ncclMax);
CHECK_VALUE(NcclOp::Min, ncclMin);
CHECK_VALUE(tensoropt::kNcclInProgress, ncclInProgress);
CHECK_VALUE(tensoropt::kHostToDevice, cudaMemcpyHostToDevice);
CHECK_VALUE(tensoropt::kDeviceToDevice, cudaMemcpyDeviceToDevice);

static_assert(tensoropt::kOldestNccl == NCCL_VERSION(2, 13, 4));
static_assert(sizeof(tensoropt::NcclId) == sizeof(ncclUniqueId));

using Properties = tensoropt::CudaDeviceProperties;
static_assert(offsetof(Properties, name) == offsetof(cudaDeviceProp, name));
static_assert(offsetof(Properties, total_memory) == offsetof(cudaDeviceProp, totalGlobalMem));
static_assert(sizeof(Properties) >= sizeof(cudaDeviceProp));

}  // namespace
