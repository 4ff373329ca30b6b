// Connections to a hub for ranks started by mpiexec or srun, which exchange its address through
// MPI.
#pragma once

namespace tensoropt {

// Connects every rank of MPI_COMM_WORLD to a hub of rank 0, unless it is connected. Collective.
// Throws `Error`.
void watch_over_mpi();

}  // namespace tensoropt
