// Errors of this library, as one line.
#pragma once

#include <stdexcept>

namespace tensoropt {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace tensoropt
