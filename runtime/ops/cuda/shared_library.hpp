// Libraries that need not be there: opened at first use, their functions looked up by name.
#pragma once

#include <string>
#include <vector>

namespace tensoropt {

class SharedLibrary {
 public:
  // The library at the path in environment variable `variable`; else the first of `names` that this
  // process has loaded, else the first that the loader finds. Throws one line that says why there
  // is none, with `what` it is and what to install.
  SharedLibrary(const char* what, const char* variable, const std::vector<const char*>& names);

  // Sets `function` to the symbol. Throws where the library has none.
  template <class Function>
  void find(Function*& function, const char* symbol) const {
    function = reinterpret_cast<Function*>(address(symbol));
  }

 private:
  void* address(const char* symbol) const;

  std::string what_;
  std::string file_;
  void* handle_ = nullptr;  // never closed: what was made with it lives as long as the process
};

}  // namespace tensoropt
