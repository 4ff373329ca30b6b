// A minimal declaration of NCCL: the functions that are called, enumerations by value.
// check_nccl.cpp compares it with the real header, if one is found.
#pragma once

#include <cstddef>
#include <string>

#include "cuda/cuda_api.hpp"

namespace tensoropt {

using NcclComm = struct ncclComm*;  // ncclComm_t

struct NcclId {  // ncclUniqueId
  char bytes[128];
};

enum class NcclType : int {  // ncclDataType_t
  Int8 = 0,
  UInt8 = 1,
  Int32 = 2,
  Int64 = 4,
  Float16 = 6,
  Float32 = 7,
  Float64 = 8,
  BFloat16 = 9,
};

enum class NcclOp : int { Sum = 0, Max = 2, Min = 3 };  // ncclRedOp_t

inline constexpr int kNcclInProgress = 7;    // ncclInProgress
inline constexpr int kOldestNccl = 2'13'04;  // 2.13.4, the first version with all these functions

// clang-format off: one function per line
#define TENSOROPT_NCCL_FUNCTIONS(f)                                                               \
  f(ncclGetVersion, int* version)                                                                 \
  f(ncclGetUniqueId, NcclId* id)                                                                  \
  f(ncclCommInitRank, NcclComm* comm, int ranks, NcclId id, int rank)                             \
  f(ncclCommAbort, NcclComm comm)                                                                 \
  f(ncclCommGetAsyncError, NcclComm comm, int* error)                                             \
  f(ncclAllReduce, const void* x, void* y, std::size_t count, NcclType type, NcclOp op,           \
    NcclComm comm, CudaStream stream)                                                             \
  f(ncclAllGather, const void* x, void* y, std::size_t count, NcclType type, NcclComm comm,       \
    CudaStream stream)                                                                            \
  f(ncclReduceScatter, const void* x, void* y, std::size_t count, NcclType type, NcclOp op,       \
    NcclComm comm, CudaStream stream)                                                             \
  f(ncclBroadcast, const void* x, void* y, std::size_t count, NcclType type, int root,            \
    NcclComm comm, CudaStream stream)                                                             \
  f(ncclSend, const void* x, std::size_t count, NcclType type, int peer, NcclComm comm,           \
    CudaStream stream)                                                                            \
  f(ncclRecv, void* y, std::size_t count, NcclType type, int peer, NcclComm comm,                 \
    CudaStream stream)                                                                            \
  f(ncclGroupStart)                                                                               \
  f(ncclGroupEnd)
// clang-format on

// NOLINTBEGIN(readability-identifier-naming): the names are NCCL's
struct NcclApi {
  NcclApi();

#define TENSOROPT_DECLARE(name, ...) int (*name)(__VA_ARGS__);
  TENSOROPT_NCCL_FUNCTIONS(TENSOROPT_DECLARE)
#undef TENSOROPT_DECLARE
  const char* (*ncclGetErrorString)(int result);
  const char* (*ncclGetLastError)(NcclComm comm);
};
// NOLINTEND(readability-identifier-naming)

// NCCL, loaded at first use. Throws if it cannot be loaded or is too old.
const NcclApi& nccl();

// Returns "2.32.3" for NCCL's version number 23203.
std::string nccl_version_text(int version);

void check_nccl(const char* function, int result);

}  // namespace tensoropt
