// Cleanup of shared memory that MPICH leaks if it is not finalised.
#pragma once

#include <string>

namespace tensoropt {

// Removes the names of the shared memory that MPICH maps in this process; to be called once all
// ranks have mapped it. The memory then lives until all ranks of the machine have ended, however
// they end. With a `job`, MPICH's name of it, also removes memory that this process has not mapped.
void forget_shared_memory(const std::string& job);

}  // namespace tensoropt
