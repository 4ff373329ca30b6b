#include "execute.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "reduction.hpp"

namespace stand_in {
namespace {

// FNV-1a, 64 bits, of what all members of a communicator must call alike.
std::uint64_t signature(const Operation& call) {
  const std::uint64_t parts[] = {std::uint64_t(call.kind), call.count, std::uint64_t(call.type),
                                 std::uint64_t(call.has_op() ? int(call.op) : -1),
                                 std::uint64_t(call.peer)};
  std::uint64_t hash = 0xcbf29ce484222325;
  for (auto part : parts)
    for (int byte = 0; byte < 8; ++byte)
      hash = (hash ^ ((part >> (8 * byte)) & 0xff)) * 0x100000001b3;
  return hash;
}

// What NCCL leaves undefined: members whose calls do not go together.
void check_agreement(const Operation& call) {
  // The largest complement is the smallest's complement. Lost where the communicator is aborted:
  // MPI may still write there.
  const auto mine = signature(call);
  auto* bounds = new std::uint64_t[2]{mine, ~mine};
  MPI_Request request;
  check_mpi("MPI_Iallreduce", MPI_Iallreduce(MPI_IN_PLACE, bounds, 2, MPI_UINT64_T, MPI_MAX,
                                             call.comm->mpi, &request));
  wait(*call.comm, request);
  const bool agree = bounds[0] == ~bounds[1];
  delete[] bounds;
  if (!agree)
    throw Failure(Result::InvalidUsage, std::string(call_name(call.kind)) +
                                            " : the ranks of the communicator call different "
                                            "things here, this one with " +
                                            std::to_string(call.count) + " " + name_of(call.type));
}

const char* bytes(const void* address) { return static_cast<const char*>(address); }

MPI_Request all_reduce(const Operation& call) {
  MPI_Request request;
  const void* send = call.send == call.recv ? MPI_IN_PLACE : call.send;
  check_mpi("MPI_Iallreduce_c",
            MPI_Iallreduce_c(send, call.recv, MPI_Count(call.count), mpi_type(call.type),
                             mpi_op(call.type, call.op), call.comm->mpi, &request));
  return request;
}

MPI_Request all_gather(const Operation& call) {
  const auto own = call.count * bytes_of(call.type) * std::size_t(call.comm->rank);
  const void* send = call.send == bytes(call.recv) + own ? MPI_IN_PLACE : call.send;
  MPI_Request request;
  check_mpi("MPI_Iallgather_c",
            MPI_Iallgather_c(send, MPI_Count(call.count), mpi_type(call.type), call.recv,
                             MPI_Count(call.count), mpi_type(call.type), call.comm->mpi, &request));
  return request;
}

// `copy` holds what is put in: NCCL lets the result lie in its midst, MPI does not.
MPI_Request reduce_scatter(const Operation& call, std::vector<char>& copy) {
  const auto total = call.count * bytes_of(call.type) * std::size_t(call.comm->size());
  copy.assign(bytes(call.send), bytes(call.send) + total);
  MPI_Request request;
  check_mpi("MPI_Ireduce_scatter_block_c",
            MPI_Ireduce_scatter_block_c(copy.data(), call.recv, MPI_Count(call.count),
                                        mpi_type(call.type), mpi_op(call.type, call.op),
                                        call.comm->mpi, &request));
  return request;
}

MPI_Request broadcast(const Operation& call) {
  if (call.comm->rank == call.peer && call.send != call.recv)
    std::memcpy(call.recv, call.send, call.count * bytes_of(call.type));
  MPI_Request request;
  check_mpi("MPI_Ibcast_c", MPI_Ibcast_c(call.recv, MPI_Count(call.count), mpi_type(call.type),
                                         call.peer, call.comm->mpi, &request));
  return request;
}

MPI_Request started(const Operation& call, std::vector<char>& copy) {
  switch (call.kind) {
    case Kind::AllReduce: return all_reduce(call);
    case Kind::AllGather: return all_gather(call);
    case Kind::ReduceScatter: return reduce_scatter(call, copy);
    default: return broadcast(call);
  }
}

void collective(const Operation& call) {
  check_agreement(call);
  auto* copy = new std::vector<char>;  // lost, too, where the communicator is aborted
  auto request = started(call, *copy);
  wait(*call.comm, request);
  delete copy;
}

MPI_Request posted(const Operation& call) {
  MPI_Request request;
  const auto count = MPI_Count(call.count);
  const int tag = 0;
  const auto type = mpi_type(call.type);
  if (call.kind == Kind::Send)
    check_mpi("MPI_Isend_c",
              MPI_Isend_c(call.send, count, type, call.peer, tag, call.comm->mpi, &request));
  else
    check_mpi("MPI_Irecv_c",
              MPI_Irecv_c(call.recv, count, type, call.peer, tag, call.comm->mpi, &request));
  return request;
}

void finish(const Operation& call, MPI_Request request) {
  MPI_Status status;
  wait(*call.comm, request, &status);
  if (call.kind == Kind::Send) return;
  MPI_Count got = 0;
  MPI_Get_count_c(&status, mpi_type(call.type), &got);
  if (got != MPI_Count(call.count))
    throw Failure(Result::InvalidUsage, "Recv : rank " + std::to_string(call.peer) + " sent " +
                                            std::to_string(got) + " elements, not " +
                                            std::to_string(call.count));
}

void exchange(const std::vector<Operation>& calls) {
  std::vector<MPI_Request> requests;
  for (const auto& call : calls) requests.push_back(posted(call));
  for (std::size_t i = 0; i < calls.size(); ++i) finish(calls[i], requests[i]);
}

}  // namespace

const char* call_name(Kind kind) {
  constexpr const char* kNames[] = {"AllReduce", "AllGather", "ReduceScatter",
                                    "Broadcast", "Send",      "Recv"};
  return kNames[int(kind)];
}

void execute(const std::vector<Operation>& operations) {
  std::vector<Operation> messages, collectives;
  for (const auto& call : operations)
    (call.is_point_to_point() ? messages : collectives).push_back(call);
  exchange(messages);
  std::ranges::for_each(collectives, collective);
}

}  // namespace stand_in
