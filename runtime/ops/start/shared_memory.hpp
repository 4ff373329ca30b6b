// What MPICH would leave behind where it is not ended in order.
#pragma once

#include <string>

namespace tensoropt {

// Removes the names of the shared memory that MPICH maps in this process, once all ranks have it:
// it lives on until all of the machine's ranks have ended, however they do, and not for ever. Of a
// `job` that MPICH knows by this name, also what this process has not mapped yet.
void forget_shared_memory(const std::string& job);

}  // namespace tensoropt
