// Bringing MPI up where the program around ONNX Runtime has not, under any launcher.
#pragma once

#include <string>

namespace tensoropt {

// Does nothing where MPI is up already. Else finds out how this process was started
// (launch_environment.hpp), initialises MPI with MPI_THREAD_MULTIPLE, and has it finalised when the
// process exits. Where ranks meet over TCP, a rank that ends from now on without that ends the
// others with a message. A process that exits with another status than 0 has failed, unless MPI was
// finalised before. Throws `Error`.
//
// `job` says what all ranks must have in common, as "NAME=HASH,NAME=HASH": a rank that has another
// HASH than rank 0 is refused where ranks meet over TCP.
void start(const std::string& job = "");

}  // namespace tensoropt
