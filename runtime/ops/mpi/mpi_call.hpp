// MPI's return codes as exceptions.
#pragma once

#include <mpi.h>

namespace tensoropt {

// Throws `Error` unless `code` is a success. A failed MPI call fails the job: if another rank was
// killed, the process ends in here with a line that reports it (control.hpp).
void check_mpi(const char* function, int code);

}  // namespace tensoropt
