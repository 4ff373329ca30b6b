// Groups of ranks and their communicators.
#pragma once

#include <mpi.h>

#include <string>

#include "collective.hpp"

namespace tensoropt {

// Brings MPI up where the program around has not (start.hpp). Throws unless it may be called from
// this thread.
void require_mpi();

// This process among the ranks of the job; MPI is up.
int job_rank();
int job_size();

// Throws unless `group` names distinct ranks of this job, this one among them.
void check_group(const Shape& group);

// The communicator whose rank i is global rank group[i]. Made at first use, which every member
// reaches at the same collective, and kept for the life of the process: sessions share it.
MPI_Comm communicator(const Shape& group);

// Throws, on every member, unless all members of `comm` pass the same `description`.
void check_agreement(MPI_Comm comm, const std::string& description);

}  // namespace tensoropt
