// Collectives from the attributes of their nodes.
#pragma once

#include "collective.hpp"
#include "ort/ort_api.hpp"

namespace tensoropt {

// Reads and checks the attributes. MPI must be initialised; nothing is sent. Throws if an attribute
// is missing or has invalid ranks.
Collective read_collective(const Api& api, const OrtKernelInfo* info, Kind kind);

// The same for a node with several collectives; does not read dimensions.
Collective read_combined(const Api& api, const OrtKernelInfo* info, Kind kind);

// Reads the attributes that result shapes depend on, unchecked.
Collective read_shapes(const Api& api, OrtShapeInferContext* context, Kind kind);

}  // namespace tensoropt
