// A minimal declaration of the CUDA runtime: the functions that are called, enumerations as int.
// check_nccl.cpp compares it with the real header, if one is found.
#pragma once

#include <cstddef>
#include <string>

namespace tensoropt {

using CudaStream = void*;  // cudaStream_t
using CudaEvent = void*;   // cudaEvent_t

inline constexpr int kHostToDevice = 1;    // cudaMemcpyHostToDevice
inline constexpr int kDeviceToDevice = 3;  // cudaMemcpyDeviceToDevice

// The start of cudaDeviceProp, which all versions share, and room for the other fields.
struct CudaDeviceProperties {
  char name[256];
  char ids[32];
  std::size_t total_memory;
  char rest[8192];
};

// clang-format off: one function per line
#define TENSOROPT_CUDA_FUNCTIONS(f)                                                               \
  f(cudaGetDeviceCount, int* count)                                                               \
  f(cudaGetDeviceProperties, CudaDeviceProperties* properties, int device)                        \
  f(cudaDeviceGetAttribute, int* value, int attribute, int device)                                \
  f(cudaSetDevice, int device)                                                                    \
  f(cudaGetDevice, int* device)                                                                   \
  f(cudaMemcpyAsync, void* to, const void* from, std::size_t bytes, int kind, CudaStream stream)  \
  f(cudaMemcpy2DAsync, void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,  \
    std::size_t width, std::size_t height, int kind, CudaStream stream)                           \
  f(cudaMemset2DAsync, void* to, std::size_t pitch, int value, std::size_t width,                 \
    std::size_t height, CudaStream stream)                                                        \
  f(cudaStreamCreateWithFlags, CudaStream* stream, unsigned flags)                                \
  f(cudaStreamSynchronize, CudaStream stream)                                                     \
  f(cudaStreamIsCapturing, CudaStream stream, int* status)                                        \
  f(cudaStreamWaitEvent, CudaStream stream, CudaEvent event, unsigned flags)                      \
  f(cudaEventCreateWithFlags, CudaEvent* event, unsigned flags)                                   \
  f(cudaEventRecord, CudaEvent event, CudaStream stream)                                          \
  f(cudaEventDestroy, CudaEvent event)                                                            \
  f(cudaMemGetInfo, std::size_t* free, std::size_t* total)                                        \
  f(cudaRuntimeGetVersion, int* version)                                                          \
  f(cudaDriverGetVersion, int* version)                                                           \
  f(cudaGetLastError)
// clang-format on

// NOLINTBEGIN(readability-identifier-naming): the names are CUDA's
struct CudaApi {
  CudaApi();

#define TENSOROPT_DECLARE(name, ...) int (*name)(__VA_ARGS__);
  TENSOROPT_CUDA_FUNCTIONS(TENSOROPT_DECLARE)
#undef TENSOROPT_DECLARE
  const char* (*cudaGetErrorString)(int error);
};
// NOLINTEND(readability-identifier-naming)

// The runtime, loaded at first use. Throws if it cannot be loaded.
const CudaApi& cuda();

// The number of devices. Throws if there is no device, or no driver.
int cuda_device_count();

// Returns "13.0" for CUDA's version number 13000.
std::string cuda_version_text(int version);

void check_cuda(const char* function, int error);

// Copies within a device, in the order of `stream`.
void copy_on_device(const void* from, void* to, std::size_t bytes, CudaStream stream);

// Copies `rows` rows of `width` bytes, with a distance of `pitch` bytes.
void copy_rows_on_device(const void* from, std::size_t from_pitch, void* to, std::size_t to_pitch,
                         std::size_t width, std::size_t rows, CudaStream stream);

// True if work on `stream` is captured into a CUDA graph instead of being run.
bool is_captured(CudaStream stream);

// Copies memory of the host, which may change as soon as this returns.
void copy_to_device(const void* from, void* to, std::size_t bytes, CudaStream stream);

// Sets `rows` rows of `width` bytes to 0, with a distance of `pitch` bytes.
void clear_rows_on_device(void* to, std::size_t pitch, std::size_t width, std::size_t rows,
                          CudaStream stream);

}  // namespace tensoropt
