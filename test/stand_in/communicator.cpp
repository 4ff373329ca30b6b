#include "communicator.hpp"

#include <sched.h>
#include <unistd.h>

#include <cstring>
#include <mutex>
#include <set>

#include "log.hpp"
#include "runtime.hpp"

namespace stand_in {
namespace {

constexpr int kDefaultVersion = 23203;
constexpr int kFirstSharing = 23000;  // ranks may share a GPU from here on
constexpr int kTags = 16384;  // of MPI_COMM_WORLD, from kTags up, below the least of MPI's bounds

// What an id holds.
struct Invitation {
  char magic[8];
  int leader;
  int number;
};
constexpr char kMagic[8] = "standin";

// What a member tells the leader, and what the leader answers to all, once for each member.
struct Member {
  int ranks, rank, device, world;
  unsigned host;
};

struct Answer {
  int result;
  char text[120];
};

std::mutex mutex;
std::set<Communicator*> living;

void require_mpi() {
  int is_up = 0, is_over = 0;
  MPI_Initialized(&is_up);
  MPI_Finalized(&is_over);
  if (!is_up || is_over) throw Failure(Result::SystemError, "the stand-in needs MPI to be up");
}

bool may_share() {
  return version() >= kFirstSharing && setting("NCCL_MULTI_RANK_GPU_ENABLE", 0) == 1;
}

std::string sharing(const Member& a, const Member& b) {
  return "Duplicate GPU detected : rank " + std::to_string(b.rank) + " and rank " +
         std::to_string(a.rank) + " both on CUDA device " + std::to_string(a.device);
}

std::string fault_of(const Member& a, const Member& b) {
  if (a.ranks != b.ranks)
    return "ranks disagree on nranks: " + std::to_string(a.ranks) + " and " +
           std::to_string(b.ranks);
  if (a.rank == b.rank) return "two members have rank " + std::to_string(a.rank);
  return a.host == b.host && a.device == b.device && !may_share() ? sharing(a, b) : "";
}

std::string fault_of(const std::vector<Member>& members) {
  for (std::size_t b = 0; b < members.size(); ++b)
    for (std::size_t a = 0; a < b; ++a)
      if (auto fault = fault_of(members[a], members[b]); !fault.empty()) return fault;
  return "";
}

// The leader's part: hears every member, and answers each with who is where.
std::vector<Member> gather(const Member& self, int tag, Answer& answer) {
  std::vector<Member> members(std::size_t(self.ranks), self);
  for (std::size_t i = 1; i < members.size(); ++i)
    check_mpi("MPI_Recv", MPI_Recv(&members[i], sizeof(Member), MPI_BYTE, MPI_ANY_SOURCE, tag,
                                   MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  const auto fault = fault_of(members);
  answer.result = int(fault.empty() ? Result::Success : Result::InvalidUsage);
  std::strncpy(answer.text, fault.c_str(), sizeof answer.text - 1);
  const int bytes = int(members.size() * sizeof(Member));
  for (std::size_t i = 1; i < members.size(); ++i) {
    const int world = members[i].world;
    check_mpi("MPI_Send", MPI_Send(&answer, sizeof answer, MPI_BYTE, world, tag, MPI_COMM_WORLD));
    if (fault.empty())
      check_mpi("MPI_Send", MPI_Send(members.data(), bytes, MPI_BYTE, world, tag, MPI_COMM_WORLD));
  }
  return members;
}

std::vector<Member> report(const Member& self, int leader, int tag, Answer& answer) {
  std::vector<Member> members(std::size_t(self.ranks), self);
  const int bytes = int(members.size() * sizeof(Member));
  check_mpi("MPI_Send", MPI_Send(&self, sizeof self, MPI_BYTE, leader, tag, MPI_COMM_WORLD));
  check_mpi("MPI_Recv", MPI_Recv(&answer, sizeof answer, MPI_BYTE, leader, tag, MPI_COMM_WORLD,
                                 MPI_STATUS_IGNORE));
  if (answer.result == int(Result::Success))
    check_mpi("MPI_Recv", MPI_Recv(members.data(), bytes, MPI_BYTE, leader, tag, MPI_COMM_WORLD,
                                   MPI_STATUS_IGNORE));
  return members;
}

MPI_Comm communicator_of(const std::vector<int>& world, int tag) {
  MPI_Group all = MPI_GROUP_NULL, members = MPI_GROUP_NULL;
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi("MPI_Comm_group", MPI_Comm_group(MPI_COMM_WORLD, &all));
  check_mpi("MPI_Group_incl", MPI_Group_incl(all, int(world.size()), world.data(), &members));
  check_mpi("MPI_Comm_create_group", MPI_Comm_create_group(MPI_COMM_WORLD, members, tag, &comm));
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  MPI_Group_free(&members);
  MPI_Group_free(&all);
  return comm;
}

Communicator* make(const std::vector<Member>& members, const Member& self, int tag) {
  std::vector<int> world(members.size());
  for (const auto& member : members) world[std::size_t(member.rank)] = member.world;
  const auto mpi = communicator_of(world, tag);
  const std::lock_guard lock(mutex);
  static int made = 0;
  auto* comm = new Communicator{
      .index = made++, .rank = self.rank, .device = self.device, .world = world, .mpi = mpi};
  living.insert(comm);
  return comm;
}

}  // namespace

void check_mpi(const char* function, int code) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Failure(Result::SystemError, std::string(function) + ": " + text);
}

int version() { return int(setting("TENSOROPT_STAND_IN_NCCL_VERSION", kDefaultVersion)); }

UniqueId make_id() {
  require_mpi();
  static std::atomic<int> made = 0;
  UniqueId id{};
  Invitation invitation{.magic = {}, .leader = world_rank(), .number = made++};
  std::memcpy(invitation.magic, kMagic, sizeof kMagic);
  std::memcpy(id.internal, &invitation, sizeof invitation);
  return id;
}

Communicator* join(const UniqueId& id, int ranks, int rank) {
  require_mpi();
  Invitation invitation{};
  std::memcpy(&invitation, id.internal, sizeof invitation);
  if (std::memcmp(invitation.magic, kMagic, sizeof kMagic) != 0)
    throw Failure(Result::InvalidArgument, "CommInitRank : commId is none that was made");
  const Member self{ranks, rank, current_device(), world_rank(), unsigned(gethostid())};
  const int tag = kTags + invitation.number % kTags;
  Answer answer{};
  const auto members = self.world == invitation.leader
                           ? gather(self, tag, answer)
                           : report(self, invitation.leader, tag, answer);
  if (answer.result != int(Result::Success)) throw Failure(Result(answer.result), answer.text);
  return make(members, self, tag);
}

Communicator& checked(Communicator* handle) {
  const std::lock_guard lock(mutex);
  if (!handle) throw Failure(Result::InvalidArgument, "comm argument is NULL");
  if (!living.contains(handle))
    throw Failure(Result::InvalidArgument, "Error: corrupted comm object detected");
  if (handle->aborted) throw Failure(Result::InvalidUsage, "comm was aborted or destroyed");
  return *handle;
}

void abort(Communicator* handle) { checked(handle).aborted = true; }

void wait(const Communicator& comm, MPI_Request& request, MPI_Status* status) {
  constexpr int kBusy = 200, kPauseMicroseconds = 50;
  for (int looks = 0, done = 0;; ++looks) {
    check_mpi("MPI_Test", MPI_Test(&request, &done, status));
    if (done) return;
    if (comm.aborted) throw Failure(Result::RemoteError, "comm was aborted while it waited");
    if (looks < kBusy) sched_yield();
    else usleep(kPauseMicroseconds);
  }
}

void hang(const Communicator& comm) {
  constexpr int kPauseMicroseconds = 1000;
  while (!comm.aborted) usleep(kPauseMicroseconds);
  throw Failure(Result::RemoteError, "comm was aborted while it waited");
}

}  // namespace stand_in
