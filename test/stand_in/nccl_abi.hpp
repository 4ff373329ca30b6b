// Our own declaration of what the stand-in takes and gives in place of NCCL (nccl.h, 2.30).
#pragma once

#include <cstddef>

namespace stand_in {

struct Communicator;
struct Stream;

inline constexpr std::size_t kUniqueIdBytes = 128;
struct UniqueId {
  char internal[kUniqueIdBytes];
};

enum class Result : int {
  Success = 0,
  UnhandledCudaError = 1,
  SystemError = 2,
  InternalError = 3,
  InvalidArgument = 4,
  InvalidUsage = 5,
  RemoteError = 6,
  InProgress = 7,
};

enum class Op : int { Sum = 0, Prod = 1, Max = 2, Min = 3, Avg = 4 };
inline constexpr int kOps = 5;

enum class Type : int {
  Int8 = 0,
  UInt8 = 1,
  Int32 = 2,
  UInt32 = 3,
  Int64 = 4,
  UInt64 = 5,
  Float16 = 6,
  Float32 = 7,
  Float64 = 8,
  BFloat16 = 9,
  Float8E4M3 = 10,
  Float8E5M2 = 11,
};
inline constexpr int kTypes = 12;

}  // namespace stand_in
