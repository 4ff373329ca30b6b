// The shape of a tensor.
#pragma once

#include <cstdint>
#include <vector>

namespace tensoropt {

using Shape = std::vector<std::int64_t>;

}  // namespace tensoropt
