#include "cuda/shared_library.hpp"

#include <dlfcn.h>

#include <cstdlib>

#include "error.hpp"

namespace tensoropt {
namespace {

void* first_of(const std::vector<const char*>& names, int flags) {
  for (const auto* name : names)
    if (void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL | flags)) return handle;
  return nullptr;
}

std::string reason() {
  const char* text = dlerror();
  return text ? text : "no reason given";
}

}  // namespace

SharedLibrary::SharedLibrary(const char* what, const char* variable,
                             const std::vector<const char*>& names, const char* command)
    : what_(what), file_(names.front()) {
  if (const char* path = std::getenv(variable); path && *path) {
    file_ = path;
    handle_ = first_of({path}, 0);
    if (!handle_) throw Error(what_ + " cannot be loaded from " + variable + ": " + reason());
    return;
  }
  handle_ = first_of(names, RTLD_NOLOAD);
  if (!handle_) handle_ = first_of(names, 0);
  if (handle_) return;
  first_of({names.front()}, 0);  // sets the error for the newest version
  throw Error(what_ + " cannot be loaded: " + reason() + ", expected it after: " + command +
              ", or its path in " + variable);
}

void* SharedLibrary::address(const char* symbol) const {
  if (void* found = dlsym(handle_, symbol)) return found;
  throw Error(what_ + " has no function " + symbol + ", expected a newer " + file_);
}

}  // namespace tensoropt
