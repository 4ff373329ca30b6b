#include "cuda/cuda_facts.hpp"

#include "cuda/nccl_api.hpp"
#include "error.hpp"

namespace tensoropt {
namespace {

std::string quoted(const std::string& text) {
  std::string json = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') json += '\\';
    json += static_cast<unsigned char>(letter) < ' ' ? ' ' : letter;
  }
  return json + "\"";
}

template <class Function>
int version_from(const char* name, Function function) {
  int version = 0;
  check_cuda(name, function(&version));
  return version;
}

std::string facts() {
  const int count = cuda_device_count();
  int nccl_version = 0;
  nccl().ncclGetVersion(&nccl_version);
  std::string memory, names;
  for (int device = 0; device < count; ++device) {
    CudaDeviceProperties properties{};
    check_cuda("cudaGetDeviceProperties", cuda().cudaGetDeviceProperties(&properties, device));
    if (device) memory += ", ", names += ", ";
    memory += std::to_string(properties.total_memory);
    names += quoted(properties.name);
  }
  const auto runtime = version_from("cudaRuntimeGetVersion", cuda().cudaRuntimeGetVersion);
  const auto driver = version_from("cudaDriverGetVersion", cuda().cudaDriverGetVersion);
  return "{\"nccl\": " + quoted(nccl_version_text(nccl_version)) +
         ", \"cuda\": " + quoted(cuda_version_text(runtime)) +
         ", \"driver\": " + quoted(cuda_version_text(driver)) + ", \"gpus\": [" + memory +
         "], \"names\": [" + names + "]}";
}

}  // namespace

std::string cuda_facts() {
  try {
    return facts();
  } catch (const std::exception& error) {
    return "{\"error\": " + quoted(error.what()) + "}";
  }
}

long long device_used_bytes(int device) {
  try {
    std::size_t free = 0, total = 0;
    int before = 0;
    check_cuda("cudaGetDevice", cuda().cudaGetDevice(&before));
    check_cuda("cudaSetDevice", cuda().cudaSetDevice(device));
    const int error = cuda().cudaMemGetInfo(&free, &total);
    check_cuda("cudaSetDevice", cuda().cudaSetDevice(before));
    check_cuda("cudaMemGetInfo", error);
    return static_cast<long long>(total - free);
  } catch (const std::exception&) {
    return -1;
  }
}

}  // namespace tensoropt
