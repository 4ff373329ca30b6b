// Our own declaration of what the stand-in takes and gives in place of the CUDA runtime
// (cuda_runtime_api.h, 13).
#pragma once

#include <cstddef>

namespace stand_in {

struct Event;

// The start of cudaDeviceProp.
struct DeviceProperties {
  char name[256];
  char uuid[16];
  char other_ids[16];
  std::size_t total_memory;
};

// What cudaMemcpy3DParms holds; `rows` of a place (CUDA's ysize) are those from slice to slice.
struct Offset {
  std::size_t bytes, row, slice;
};
struct Place {
  void* start;
  std::size_t pitch, width, rows;
};
struct BoxCopy {
  void* from_array;
  Offset from_offset;
  Place from;
  void* to_array;
  Offset to_offset;
  Place to;
  std::size_t width, rows, slices;
  int kind;
};

inline constexpr std::size_t kMemoryHandleBytes = 64;
struct MemoryHandle {
  char bytes[kMemoryHandleBytes];
};

enum class CudaError : int {
  Success = 0,
  InvalidValue = 1,
  MemoryAllocation = 2,
  InvalidPitchValue = 12,
  InvalidMemcpyDirection = 21,
  InsufficientDriver = 35,
  NoDevice = 100,
  InvalidDevice = 101,
  DeviceUninitialized = 201,
  MapBufferObjectFailed = 205,
  HostMemoryAlreadyRegistered = 712,
  HostMemoryNotRegistered = 713,
};

// cudaMemcpyHostToHost to cudaMemcpyDefault are 0 to 4.
inline constexpr int kMemcpyKinds = 5;
inline constexpr int kMemcpyDeviceToDevice = 3;

}  // namespace stand_in
