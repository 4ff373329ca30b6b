// Initialisation of MPI under any launcher, if the surrounding program has not done it.
#pragma once

#include <string>

namespace tensoropt {

// Does nothing if MPI is initialised. Otherwise determines how this process was launched
// (launch_environment.hpp), initialises MPI with MPI_THREAD_MULTIPLE, and finalises it when the
// process exits. If ranks meet over TCP, a rank that later ends without finalising MPI ends the
// other ranks with a message. A process with an exit status other than 0 has failed, unless MPI was
// finalised before. Throws `Error`.
//
// `job` has the values that all ranks must share, as "NAME=HASH,NAME=HASH": if ranks meet over TCP,
// a rank with another HASH than rank 0 is refused.
void start(const std::string& job = "");

}  // namespace tensoropt
