#include "cuda/nccl_api.hpp"

#include "cuda/shared_library.hpp"
#include "error.hpp"

namespace tensoropt {

NcclApi::NcclApi() {
  const SharedLibrary library("NCCL", "TENSOROPT_NCCL", {"libnccl.so.2"});
  library.find(ncclGetVersion, "ncclGetVersion");
  int version = 0;
  ncclGetVersion(&version);
  if (version < kOldestNccl)
    throw Error("NCCL is too old, expected " + nccl_version_text(kOldestNccl) +
                " or later, got: " + nccl_version_text(version));
#define TENSOROPT_FIND(name, ...) library.find(name, #name);
  TENSOROPT_NCCL_FUNCTIONS(TENSOROPT_FIND)
#undef TENSOROPT_FIND
  library.find(ncclGetErrorString, "ncclGetErrorString");
  library.find(ncclGetLastError, "ncclGetLastError");
}

const NcclApi& nccl() {
  static const NcclApi api;
  return api;
}

std::string nccl_version_text(int version) {
  // Up to 2.8, the version number has one digit less.
  const int major = version >= 10000 ? 10000 : 1000;
  return std::to_string(version / major) + "." + std::to_string(version % major / 100) + "." +
         std::to_string(version % 100);
}

void check_nccl(const char* function, int result) {
  if (result == 0) return;
  std::string text = std::string(function) + " failed: " + nccl().ncclGetErrorString(result);
  const char* last = nccl().ncclGetLastError(nullptr);
  if (last && *last) text += std::string(" (") + last + ")";
  for (auto& letter : text)
    if (letter == '\n') letter = ' ';
  throw Error(text);
}

}  // namespace tensoropt
