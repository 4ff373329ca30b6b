// The collectives as custom ops.
#pragma once

#include "collective.hpp"
#include "custom_op.hpp"

namespace tensoropt {

CustomOp collective_op(Kind kind, Place place);

}  // namespace tensoropt
