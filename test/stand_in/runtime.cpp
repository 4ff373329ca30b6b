#include "runtime.hpp"

#include <dlfcn.h>

namespace stand_in {
namespace {

// A function of the stand-in of the CUDA runtime, null without one.
template <class Function>
Function* function(const char* name) {
  void* library = dlopen("libcudart.so.13", RTLD_NOLOAD | RTLD_LAZY);
  if (!library) return nullptr;
  auto* const found = reinterpret_cast<Function*>(dlsym(library, name));
  dlclose(library);
  return found;
}

}  // namespace

int current_device() {
  int device = 0;
  if (auto* const get = function<int(int*)>("cudaGetDevice")) get(&device);
  return device;
}

bool runs_later(const Stream* stream, void (*work)(void*), void* what) {
  auto* const later = function<int(const Stream*, void (*)(void*), void*)>("stand_in_later");
  return later && later(stream, work, what);
}

}  // namespace stand_in
