// Our own declaration of what the stand-in takes and gives in place of the CUDA runtime
// (cuda_runtime_api.h, 13).
#pragma once

#include <cstddef>

namespace stand_in {

// The start of cudaDeviceProp.
struct DeviceProperties {
  char name[256];
  char ids[32];
  std::size_t total_memory;
};

enum class CudaError : int {
  Success = 0,
  InvalidValue = 1,
  InvalidPitchValue = 12,
  InvalidMemcpyDirection = 21,
  InsufficientDriver = 35,
  NoDevice = 100,
  InvalidDevice = 101,
};

// cudaMemcpyHostToHost to cudaMemcpyDefault are 0 to 4.
inline constexpr int kMemcpyKinds = 5;
inline constexpr int kMemcpyDeviceToDevice = 3;

}  // namespace stand_in
