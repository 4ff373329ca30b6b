// What MPICH leaves behind where it is not ended in order.
#pragma once

namespace tensoropt {

// Removes the names of the shared memory that MPICH maps in this process: it lives on until all of
// the machine's ranks have ended, and not for ever.
void forget_shared_memory();

}  // namespace tensoropt
