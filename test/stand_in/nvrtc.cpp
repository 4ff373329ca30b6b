// libnvrtc.so.13, with the driver's functions that launch kernels, on host memory: source that is
// C++ except for names of CUDA is compiled by $CXX, or c++. Its kernel must be called
// `elementwise`, with one structure of addresses.
//
// TENSOROPT_STAND_IN_SOURCES: a folder into which all sources are written. A source with an error
// fails with the first line of the C++ compiler.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "half.hpp"
#include "log.hpp"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

namespace fs = std::filesystem;

constexpr int kCompilationFailed = 6, kInvalidOption = 5, kInvalidImage = 200, kNotFound = 500;

constexpr const char* kBefore = R"(#include <bit>
#include <cmath>
#define __global__
#define __device__
struct Index { unsigned x; };
static Index blockIdx, threadIdx, blockDim;
static unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
static float __uint_as_float(unsigned word) { return std::bit_cast<float>(word); }
#line 1 "tensoropt.cu"
)";
constexpr const char* kAfter = R"(
extern "C" void stand_in_run(const void* to, unsigned blocks, unsigned threads) {
  blockDim.x = threads;
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
    for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x)
      elementwise(*static_cast<const Arguments*>(to));
}
)";

struct Program {
  std::string source, log, code;
};

std::string text_of(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

void keep(const std::string& source) {
  const char* folder = std::getenv("TENSOROPT_STAND_IN_SOURCES");
  if (!folder) return;
  fs::create_directories(folder);
  const auto name = std::to_string(std::hash<std::string>{}(source)) + ".cu";
  std::ofstream(fs::path(folder) / name) << source;
}

// A folder of this process, removed with this object.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "tensoropt-stand-in-XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path); }

  fs::path path;
};

using Run = void (*)(const void* to, unsigned blocks, unsigned threads);

}  // namespace

// The conversions of CUDA's device library, which sources declare.
EXPORT unsigned short __nv_float2half_rn(float value) {
  return tensoropt::Float16::round(value).bits;
}
EXPORT float __nv_half2float(unsigned short bits) { return tensoropt::Float16{bits}.widen(); }

EXPORT int nvrtcCreateProgram(Program** program, const char* source, const char*, int,
                              const char* const*, const char* const*) {
  *program = new Program{source, "", ""};
  return 0;
}

EXPORT int nvrtcCompileProgram(Program* program, int count, const char* const* options) {
  std::string all;
  for (int i = 0; i < count; ++i) all += std::string(i ? " " : "") + options[i];
  stand_in::Line("nvrtcCompileProgram").add("options", all);
  if (all.find("--gpu-architecture=sm_") == std::string::npos) return kInvalidOption;
  keep(program->source);
  const Folder folder;
  const auto source = folder.path / "a.cpp", library = folder.path / "a.so";
  const auto log = folder.path / "log";
  std::ofstream(source) << kBefore << program->source << kAfter;
  const char* compiler = std::getenv("CXX");
  const auto command = std::string(compiler ? compiler : "c++") +
                       " -std=c++20 -O1 -ffp-contract=off -w -shared -fPIC -o " + library.string() +
                       " " + source.string() + " 2> " + log.string();
  const int status = std::system(command.c_str());
  program->log = text_of(log);
  if (status) return kCompilationFailed;
  program->code = text_of(library);
  return 0;
}

EXPORT int nvrtcGetProgramLogSize(Program* program, std::size_t* bytes) {
  *bytes = program->log.size() + 1;
  return 0;
}

EXPORT int nvrtcGetProgramLog(Program* program, char* log) {
  std::memcpy(log, program->log.c_str(), program->log.size() + 1);
  return 0;
}

EXPORT int nvrtcGetCUBINSize(Program* program, std::size_t* bytes) {
  // In front is the number of bytes, which a loader of machine code reads from the code itself.
  *bytes = sizeof(std::size_t) + program->code.size();
  return 0;
}

EXPORT int nvrtcGetCUBIN(Program* program, char* code) {
  const auto size = program->code.size();
  std::memcpy(code, &size, sizeof size);
  std::memcpy(code + sizeof size, program->code.data(), size);
  return 0;
}

EXPORT int nvrtcDestroyProgram(Program** program) {
  delete *program;
  *program = nullptr;
  return 0;
}

EXPORT const char* nvrtcGetErrorString(int error) {
  return error == kCompilationFailed ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR_INVALID_OPTION";
}

EXPORT int cuLibraryLoadData(void** library, const void* code, int*, void**, unsigned, int*, void**,
                             unsigned) {
  std::size_t size = 0;
  std::memcpy(&size, code, sizeof size);
  const Folder folder;
  const auto path = folder.path / "a.so";
  std::ofstream(path, std::ios::binary)
      .write(static_cast<const char*>(code) + sizeof size, std::streamsize(size));
  // Sources refer to functions of this library.
  Dl_info self;
  if (dladdr(reinterpret_cast<void*>(&nvrtcDestroyProgram), &self))
    dlopen(self.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
  *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  return *library ? 0 : kInvalidImage;
}

EXPORT int cuLibraryGetKernel(void** kernel, void* library, const char* name) {
  if (!dlsym(library, name)) return kNotFound;
  *kernel = dlsym(library, "stand_in_run");
  return 0;
}

EXPORT int cuLaunchKernel(void* kernel, unsigned blocks, unsigned, unsigned, unsigned threads,
                          unsigned, unsigned, unsigned, void* stream, void** arguments, void**) {
  stand_in::Line("cuLaunchKernel")
      .add("blocks", blocks)
      .add("threads", threads)
      .add("stream", stand_in::number(stream));
  if (!blocks || !threads || threads > 1024) return 1;
  reinterpret_cast<Run>(kernel)(arguments[0], blocks, threads);
  return 0;
}

EXPORT int cuGetErrorString(int error, const char** text) {
  *text = error == kInvalidImage ? "device kernel image is invalid"
          : error == kNotFound   ? "named symbol not found"
                                 : "invalid argument";
  return 0;
}
