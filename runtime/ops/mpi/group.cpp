#include "mpi/group.hpp"

#include <algorithm>
#include <map>
#include <mutex>

#include "mpi/mpi_call.hpp"
#include "start/start.hpp"

namespace tensoropt {
namespace {

MPI_Comm make_communicator(const Shape& group) {
  const std::vector<int> ranks(group.begin(), group.end());
  MPI_Group world = MPI_GROUP_NULL, members = MPI_GROUP_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi("MPI_Comm_group", MPI_Comm_group(MPI_COMM_WORLD, &world));
  check_mpi("MPI_Group_incl", MPI_Group_incl(world, int(ranks.size()), ranks.data(), &members));
  const int tag = 0;
  check_mpi("MPI_Comm_create_group", MPI_Comm_create_group(MPI_COMM_WORLD, members, tag, &comm));
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  MPI_Group_free(&members);
  MPI_Group_free(&world);
  return comm;
}

// FNV-1a, 64 bits.
std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (unsigned char byte : text) hash = (hash ^ byte) * 0x100000001b3;
  return hash;
}

}  // namespace

void require_mpi() {
  int finalized = 0, provided = 0, is_main = 0;
  start();
  MPI_Finalized(&finalized);
  if (finalized) throw Error("MPI is already finalised");
  MPI_Query_thread(&provided);
  MPI_Is_thread_main(&is_main);
  if (provided < MPI_THREAD_SERIALIZED && !is_main)
    throw Error(
        "collective on another thread than the one that initialised MPI, expected "
        "MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE, or to run on the main thread");
}

int job_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int job_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

void check_group(const Shape& group) {
  const int rank = job_rank(), size = job_size();
  auto sorted = group;
  std::sort(sorted.begin(), sorted.end());
  if (sorted.empty() || sorted.front() < 0 || sorted.back() >= size)
    throw Error("group names ranks that do not exist, expected ranks below " +
                std::to_string(size) + ", got: " + text_of(group));
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
    throw Error("group names a rank twice, got: " + text_of(group));
  if (!std::binary_search(sorted.begin(), sorted.end(), rank))
    throw Error("group does not hold this rank, expected rank " + std::to_string(rank) +
                " in it, got: " + text_of(group));
}

MPI_Comm communicator(const Shape& group) {
  static std::mutex mutex;
  static std::map<Shape, MPI_Comm> made;
  const std::lock_guard lock(mutex);
  const auto found = made.find(group);
  if (found != made.end()) return found->second;
  return made[group] = make_communicator(group);
}

void check_agreement(MPI_Comm comm, const std::string& description) {
  const std::uint64_t mine = hash_of(description);
  std::uint64_t bounds[2] = {mine, ~mine};  // the largest complement is the smallest's complement
  check_mpi("MPI_Allreduce", MPI_Allreduce(MPI_IN_PLACE, bounds, 2, MPI_UINT64_T, MPI_MAX, comm));
  if (bounds[0] != ~bounds[1])
    throw Error("the ranks of the group disagree here, this rank has: " + description);
}

}  // namespace tensoropt
