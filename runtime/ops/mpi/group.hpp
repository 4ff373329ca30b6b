// Groups of ranks and their communicators.
#pragma once

#include <mpi.h>

#include <string>

#include "collective.hpp"

namespace tensoropt {

// Initialises MPI unless the surrounding program has (start.hpp). Throws unless this thread may
// call it.
void require_mpi();

// This process's rank and the number of ranks of the job; MPI must be initialised.
int job_rank();
int job_size();

// Throws unless `group` has distinct ranks of this job, including this rank.
void check_group(const Shape& group);

// The communicator in which rank i is global rank group[i]. It is created at first use, which every
// member reaches at the same collective. Sessions share it for the life of the process.
MPI_Comm communicator(const Shape& group);

// Throws, on every member, unless all members of `comm` pass the same `description`.
void check_agreement(MPI_Comm comm, const std::string& description);

}  // namespace tensoropt
