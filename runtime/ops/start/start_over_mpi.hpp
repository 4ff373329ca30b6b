// Connections to a hub for ranks that mpiexec or srun started: they find it through MPI.
#pragma once

namespace tensoropt {

// Gives every rank of MPI_COMM_WORLD a connection to a hub of rank 0, unless it has one.
// Collective. Throws `Error`.
void watch_over_mpi();

}  // namespace tensoropt
