// Groups of ranks and their communicators.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tensoropt {

// Throws unless MPI is initialised and may be called from this thread.
void require_mpi();

// Throws unless `group` names distinct ranks of this job, this one among them.
void check_group(const std::vector<std::int64_t> &group);

// The communicator whose rank i is global rank group[i]. Made at first use, which every member
// reaches at the same collective, and kept for the life of the process: sessions share it.
MPI_Comm communicator(const std::vector<std::int64_t> &group);

// Throws, on every member, unless all members of `comm` pass the same `description`.
void check_agreement(MPI_Comm comm, const std::string &description);

}  // namespace tensoropt
