// Collectives as the attributes of their nodes say them.
#pragma once

#include "collective.hpp"
#include "ort/ort_api.hpp"

namespace tensoropt {

// Reads and checks the attributes; MPI is up, nothing is sent. Throws where one is missing or
// names ranks that cannot be.
Collective read_collective(const Api& api, const OrtKernelInfo* info, Kind kind);

// The same of what a node says of several at once: dimensions are not among it.
Collective read_combined(const Api& api, const OrtKernelInfo* info, Kind kind);

// Those on which shapes depend, unchecked.
Collective read_shapes(const Api& api, OrtShapeInferContext* context, Kind kind);

}  // namespace tensoropt
