#include "cuda/cuda_api.hpp"

#include "cuda/shared_library.hpp"
#include "error.hpp"

namespace tensoropt {

CudaApi::CudaApi() {
  const SharedLibrary library("the CUDA runtime", "TENSOROPT_CUDART",
                              {"libcudart.so.13", "libcudart.so.12"});
#define TENSOROPT_FIND(name, ...) library.find(name, #name);
  TENSOROPT_CUDA_FUNCTIONS(TENSOROPT_FIND)
#undef TENSOROPT_FIND
  library.find(cudaGetErrorString, "cudaGetErrorString");
}

const CudaApi& cuda() {
  static const CudaApi api;
  return api;
}

int cuda_device_count() {
  int count = 0;
  const int error = cuda().cudaGetDeviceCount(&count);
  if (error == 0 && count > 0) return count;
  int runtime = 0, driver = 0;
  cuda().cudaRuntimeGetVersion(&runtime);
  cuda().cudaDriverGetVersion(&driver);
  cuda().cudaGetLastError();  // clears the error, which the next check would report
  throw Error(std::string("no GPU can be used: ") + cuda().cudaGetErrorString(error) +
              " (devices: " + std::to_string(count) +
              ", CUDA of the runtime: " + cuda_version_text(runtime) +
              ", newest CUDA of the driver: " + (driver ? cuda_version_text(driver) : "no driver") +
              ")");
}

std::string cuda_version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

void check_cuda(const char* function, int error) {
  if (error == 0) return;
  cuda().cudaGetLastError();  // clears the error, which the next check would report
  throw Error(std::string(function) + " failed: " + cuda().cudaGetErrorString(error));
}

void copy_on_device(const void* from, void* to, std::size_t bytes, CudaStream stream) {
  check_cuda("cudaMemcpyAsync", cuda().cudaMemcpyAsync(to, from, bytes, kDeviceToDevice, stream));
}

bool is_captured(CudaStream stream) {
  int status = 0;  // cudaStreamCaptureStatusNone
  check_cuda("cudaStreamIsCapturing", cuda().cudaStreamIsCapturing(stream, &status));
  return status != 0;
}

void copy_to_device(const void* from, void* to, std::size_t bytes, CudaStream stream) {
  check_cuda("cudaMemcpyAsync", cuda().cudaMemcpyAsync(to, from, bytes, kHostToDevice, stream));
}

void copy_rows_on_device(const void* from, std::size_t from_pitch, void* to, std::size_t to_pitch,
                         std::size_t width, std::size_t rows, CudaStream stream) {
  check_cuda("cudaMemcpy2DAsync", cuda().cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width,
                                                           rows, kDeviceToDevice, stream));
}

void clear_rows_on_device(void* to, std::size_t pitch, std::size_t width, std::size_t rows,
                          CudaStream stream) {
  check_cuda("cudaMemset2DAsync", cuda().cudaMemset2DAsync(to, pitch, 0, width, rows, stream));
}

}  // namespace tensoropt
