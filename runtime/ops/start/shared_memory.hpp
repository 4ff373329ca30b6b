// What MPICH would leave behind where it is not ended in order.
#pragma once

namespace tensoropt {

// Removes the names of the shared memory that MPICH maps in this process, once all ranks have it: it
// lives on until all of the machine's ranks have ended, however they do, and not for ever.
void forget_shared_memory();

}  // namespace tensoropt
