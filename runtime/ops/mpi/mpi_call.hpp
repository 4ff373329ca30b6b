// MPI's return codes as exceptions.
#pragma once

#include <mpi.h>

namespace tensoropt {

// Throws `Error` unless `code` is a success. A job whose MPI has failed has failed: where it did
// because another rank was killed, the process ends in here with a line that says so (control.hpp).
void check_mpi(const char* function, int code);

}  // namespace tensoropt
