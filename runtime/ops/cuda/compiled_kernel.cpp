#include "cuda/compiled_kernel.hpp"

#include <iterator>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "cuda/shared_library.hpp"
#include "error.hpp"

namespace tensoropt {
namespace {

// cudaDevAttrComputeCapabilityMajor and -Minor
constexpr int kMajor = 75, kMinor = 76;

// The functions of NVRTC and of CUDA's driver that are called; enumerations as int.
// NOLINTBEGIN(readability-identifier-naming): the names are CUDA's
struct Compiler {
  Compiler() {
    const SharedLibrary library("CUDA's compiler NVRTC", "TENSOROPT_NVRTC",
                                {"libnvrtc.so.13", "libnvrtc.so.12"});
    library.find(nvrtcCreateProgram, "nvrtcCreateProgram");
    library.find(nvrtcCompileProgram, "nvrtcCompileProgram");
    library.find(nvrtcGetProgramLogSize, "nvrtcGetProgramLogSize");
    library.find(nvrtcGetProgramLog, "nvrtcGetProgramLog");
    library.find(nvrtcGetCUBINSize, "nvrtcGetCUBINSize");
    library.find(nvrtcGetCUBIN, "nvrtcGetCUBIN");
    library.find(nvrtcDestroyProgram, "nvrtcDestroyProgram");
    library.find(nvrtcGetErrorString, "nvrtcGetErrorString");
  }

  int (*nvrtcCreateProgram)(void** program, const char* source, const char* name, int headers,
                            const char* const* texts, const char* const* names);
  int (*nvrtcCompileProgram)(void* program, int options, const char* const* texts);
  int (*nvrtcGetProgramLogSize)(void* program, std::size_t* bytes);
  int (*nvrtcGetProgramLog)(void* program, char* log);
  int (*nvrtcGetCUBINSize)(void* program, std::size_t* bytes);
  int (*nvrtcGetCUBIN)(void* program, char* cubin);
  int (*nvrtcDestroyProgram)(void** program);
  const char* (*nvrtcGetErrorString)(int error);
};

struct Driver {
  Driver() {
    const SharedLibrary library("CUDA's driver", "TENSOROPT_CUDA_DRIVER", {"libcuda.so.1"},
                                "installing NVIDIA's driver");
    library.find(cuLibraryLoadData, "cuLibraryLoadData");
    library.find(cuLibraryGetKernel, "cuLibraryGetKernel");
    library.find(cuLaunchKernel, "cuLaunchKernel");
    library.find(cuGetErrorString, "cuGetErrorString");
  }

  int (*cuLibraryLoadData)(void** library, const void* code, int* options, void** values,
                           unsigned option_count, int* library_options, void** library_values,
                           unsigned library_option_count);
  int (*cuLibraryGetKernel)(void** kernel, void* library, const char* name);
  int (*cuLaunchKernel)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CudaStream stream, void** arguments, void** extra);
  int (*cuGetErrorString)(int error, const char** text);
};
// NOLINTEND(readability-identifier-naming)

const Compiler& compiler() {
  static const Compiler compiler;
  return compiler;
}

const Driver& driver() {
  static const Driver driver;
  return driver;
}

void check_compiler(const char* function, int error) {
  if (error)
    throw Error(std::string(function) + " failed: " + compiler().nvrtcGetErrorString(error));
}

void check_driver(const char* function, int error) {
  if (!error) return;
  const char* text = nullptr;
  driver().cuGetErrorString(error, &text);
  throw Error(std::string(function) + " failed: " + (text ? text : std::to_string(error)));
}

std::string architecture_of(int device) {
  int major = 0, minor = 0;
  check_cuda("cudaDeviceGetAttribute", cuda().cudaDeviceGetAttribute(&major, kMajor, device));
  check_cuda("cudaDeviceGetAttribute", cuda().cudaDeviceGetAttribute(&minor, kMinor, device));
  return "sm_" + std::to_string(major) + std::to_string(minor);
}

// A program of NVRTC, destroyed with this object.
class Compilation {
 public:
  explicit Compilation(const std::string& source) {
    check_compiler("nvrtcCreateProgram",
                   compiler().nvrtcCreateProgram(&program_, source.c_str(), "tensoropt.cu", 0,
                                                 nullptr, nullptr));
  }
  ~Compilation() { compiler().nvrtcDestroyProgram(&program_); }
  Compilation(const Compilation&) = delete;

  // Machine code. Without contraction, a product is rounded before an addition, as in separate
  // kernels.
  std::vector<char> code(const std::string& architecture) const {
    const auto target = "--gpu-architecture=" + architecture;
    // Not every program uses all conversions, and the first line of the log is to be an error.
    const char* options[] = {target.c_str(), "--fmad=false", "--disable-warnings"};
    const int error = compiler().nvrtcCompileProgram(program_, int(std::size(options)), options);
    if (error) throw Error("NVRTC for " + architecture + ": " + reason(error));
    std::size_t bytes = 0;
    check_compiler("nvrtcGetCUBINSize", compiler().nvrtcGetCUBINSize(program_, &bytes));
    std::vector<char> code(bytes);
    check_compiler("nvrtcGetCUBIN", compiler().nvrtcGetCUBIN(program_, code.data()));
    return code;
  }

 private:
  // The first line of the log, or the error if there is none.
  std::string reason(int error) const {
    std::size_t bytes = 0;
    compiler().nvrtcGetProgramLogSize(program_, &bytes);
    std::string log(bytes, '\0');
    if (bytes) compiler().nvrtcGetProgramLog(program_, log.data());
    log = log.substr(0, log.find_first_of(std::string("\n\0", 2)));
    return log.empty() ? compiler().nvrtcGetErrorString(error) : log;
  }

  void* program_ = nullptr;
};

}  // namespace

CompiledKernel::CompiledKernel(const std::string& source, const char* name, int device) {
  const auto code = Compilation(source).code(architecture_of(device));
  void* library = nullptr;  // never unloaded, as the kernel lives in it
  check_driver("cuLibraryLoadData", driver().cuLibraryLoadData(&library, code.data(), nullptr,
                                                               nullptr, 0, nullptr, nullptr, 0));
  check_driver("cuLibraryGetKernel", driver().cuLibraryGetKernel(&function_, library, name));
}

void CompiledKernel::launch(unsigned blocks, unsigned threads, void** arguments,
                            CudaStream stream) const {
  check_driver("cuLaunchKernel", driver().cuLaunchKernel(function_, blocks, 1, 1, threads, 1, 1, 0,
                                                         stream, arguments, nullptr));
}

const CompiledKernel& compiled_kernel(const std::string& source, const char* name, int device) {
  static std::mutex mutex;
  static auto& kernels = *new std::map<std::pair<int, std::string>, CompiledKernel>;
  const std::lock_guard lock(mutex);
  const auto entry = kernels.find({device, source});
  if (entry != kernels.end()) return entry->second;
  return kernels.emplace(std::pair(device, source), CompiledKernel(source, name, device))
      .first->second;
}

}  // namespace tensoropt
