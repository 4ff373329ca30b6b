// Optional libraries: opened at first use, with functions looked up by name.
#pragma once

#include <string>
#include <vector>

namespace tensoropt {

class SharedLibrary {
 public:
  // Opens the library at the path in environment variable `variable`; else the first of `names`
  // that this process has loaded, else the first that the loader finds. Throws one line with the
  // name `what`, the reason and the command that installs it.
  SharedLibrary(const char* what, const char* variable, const std::vector<const char*>& names,
                const char* command = "pip install 'tensoropt[cuda]'");

  // Sets `function` to the symbol. Throws if the library does not have it.
  template <class Function>
  void find(Function*& function, const char* symbol) const {
    function = reinterpret_cast<Function*>(address(symbol));
  }

 private:
  void* address(const char* symbol) const;

  std::string what_;
  std::string file_;
  void* handle_ = nullptr;  // never closed: objects created with it live as long as the process
};

}  // namespace tensoropt
