// The nodes that start a collective, and the nodes that wait for it.
#pragma once

#include "collective_op.hpp"

namespace tensoropt {

CollectiveOp start_op(Form form, Place place);
CollectiveOp wait_op(Form form, Place place);

}  // namespace tensoropt
