// Random bytes for secrets and nonces.
#pragma once

#include <string>

namespace tensoropt {

// From the kernel. Throws `Error`.
std::string random_bytes(std::size_t count);

}  // namespace tensoropt
