// Bringing MPI up where the program around ONNX Runtime has not, under any launcher.
#pragma once

namespace tensoropt {

// Does nothing where MPI is up already. Else finds out how this process was started
// (launch_environment.hpp), initialises MPI with MPI_THREAD_MULTIPLE, and has it finalised when the
// process exits. Where ranks meet over TCP, a rank that ends from now on without that ends the
// others with a message. A process that exits with another status than 0 has failed, unless MPI was
// finalised before. Throws `Error`.
void start();

}  // namespace tensoropt
