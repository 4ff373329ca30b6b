// The functions of libnccl.so.2 that the library under test may call.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "communicator.hpp"
#include "execute.hpp"
#include "fault.hpp"
#include "log.hpp"
#include "reduction.hpp"
#include "runtime.hpp"

#define EXPORT extern "C" __attribute__((visibility("default")))

using namespace stand_in;

namespace {

thread_local std::string last_error;
thread_local int depth = 0;
thread_local std::vector<Operation> held;  // calls of the group that is open

// Runs a call; what it throws becomes its result, as NCCL has it, and a line of the log.
template <class Body>
Result guarded(const char* call, Body body) {
  try {
    body();
    return Result::Success;
  } catch (const Failure& failure) {
    last_error = failure.what();
    Line("error").add("of", std::string(call)).add("text", last_error);
    return failure.result;
  } catch (const std::exception& error) {
    last_error = error.what();
    return Result::InternalError;
  }
}

void record(const char* name, const Operation& call) {
  Line line(name);
  line.add("comm", call.comm->index).add("world", call.comm->world).add("rank", call.comm->rank);
  line.add("count", call.count).add("type", std::string(name_of(call.type)));
  if (call.has_op()) line.add("op", std::string(name_of(call.op)));
  if (call.has_peer()) line.add("peer", call.peer);
  line.add("send", number(call.send)).add("recv", number(call.recv));
  line.add("send_alignment", alignment(call.send)).add("recv_alignment", alignment(call.recv));
  line.add("stream", number(call.stream)).add("depth", depth);
}

void check(const std::string& name, const Operation& call) {
  checked(call.comm);
  if (int(call.type) < 0 || int(call.type) >= kTypes)
    throw Failure(Result::InvalidArgument,
                  name + " : invalid type " + std::to_string(int(call.type)));
  if (int(call.op) < 0 || int(call.op) >= kOps)
    throw Failure(Result::InvalidArgument,
                  name + " : invalid reduction operation " + std::to_string(int(call.op)));
  if (call.peer < 0 || call.peer >= call.comm->size())
    throw Failure(Result::InvalidArgument, name + " : invalid root " + std::to_string(call.peer) +
                                               " (root should be in the 0.." +
                                               std::to_string(call.comm->size()) + " range)");
}

// NCCL itself does not look; a kernel would fail on the GPU, and with it the whole context.
void check_buffers(const std::string& name, const Operation& call) {
  const bool reads =
      call.kind != Kind::Recv && (call.kind != Kind::Broadcast || call.comm->rank == call.peer);
  const bool writes = call.kind != Kind::Send;
  if (call.count > 0 && ((reads && !call.send) || (writes && !call.recv)))
    throw Failure(Result::InvalidArgument, name + " : a buffer is not a valid pointer");
}

void go_wrong_if_asked(const Operation& call) {
  switch (next_fault()) {
    case Fault::None: return;
    case Fault::Hang: hang(*call.comm);
    case Fault::Fail: throw Failure(Result::UnhandledCudaError, "made to fail by the test");
  }
}

void run_late(void* what) {
  const std::unique_ptr<std::vector<Operation>> calls(static_cast<std::vector<Operation>*>(what));
  guarded("late work", [&] {
    for (const auto& call : *calls) checked(call.comm);
    execute(*calls);
  });
}

// Runs calls of one group, now or late, as their stream has it (`late.hpp`).
void run(const std::vector<Operation>& calls) {
  if (calls.empty()) return;
  auto* const stream = calls.front().stream;
  if (std::ranges::any_of(calls, [&](const auto& call) { return call.stream != stream; }))
    throw Failure(Result::InvalidUsage, "the stand-in takes one stream in a group");
  auto kept = std::make_unique<std::vector<Operation>>(calls);
  if (runs_later(stream, run_late, kept.get())) kept.release();
  else execute(calls);
}

Result enqueue(const Operation& call) {
  const std::string name = call_name(call.kind);
  return guarded(name.c_str(), [&] {
    check(name, call);
    record(("nccl" + name).c_str(), call);
    check_buffers(name, call);
    go_wrong_if_asked(call);
    if (depth > 0) held.push_back(call);
    else run({call});
  });
}

}  // namespace

EXPORT Result ncclGetVersion(int* code) {
  *code = version();
  return Result::Success;
}

EXPORT Result ncclGetUniqueId(UniqueId* id) {
  Line("ncclGetUniqueId");
  return guarded("GetUniqueId", [&] { *id = make_id(); });
}

EXPORT Result ncclCommInitRank(Communicator** comm, int ranks, UniqueId id, int rank) {
  return guarded("CommInitRank", [&] {
    if (!comm || ranks < 1 || rank < 0 || rank >= ranks)
      throw Failure(Result::InvalidArgument, "Invalid rank requested : " + std::to_string(rank) +
                                                 "/" + std::to_string(ranks));
    if (depth > 0) throw Failure(Result::InvalidUsage, "the stand-in makes none inside a group");
    *comm = join(id, ranks, rank);
    Line("ncclCommInitRank")
        .add("comm", (*comm)->index)
        .add("world", (*comm)->world)
        .add("rank", rank)
        .add("device", (*comm)->device);
  });
}

EXPORT Result ncclCommAbort(Communicator* comm) {
  return guarded("CommAbort", [&] {
    Line("ncclCommAbort").add("comm", checked(comm).index);
    abort(comm);
  });
}

EXPORT Result ncclCommDestroy(Communicator* comm) {
  return guarded("CommDestroy", [&] {
    Line("ncclCommDestroy").add("comm", checked(comm).index);
    abort(comm);
  });
}

EXPORT Result ncclCommGetAsyncError(Communicator* comm, Result* error) {
  *error = Result::Success;
  return guarded("CommGetAsyncError", [&] { checked(comm); });
}

EXPORT const char* ncclGetErrorString(Result result) {
  switch (result) {
    case Result::Success: return "no error";
    case Result::UnhandledCudaError: return "unhandled cuda error (run with NCCL_DEBUG=INFO)";
    case Result::SystemError: return "unhandled system error (run with NCCL_DEBUG=INFO)";
    case Result::InternalError: return "internal error - please report this issue";
    case Result::InvalidArgument: return "invalid argument (run with NCCL_DEBUG=WARN)";
    case Result::InvalidUsage: return "invalid usage (run with NCCL_DEBUG=WARN)";
    case Result::RemoteError: return "remote process exited or there was a network error";
    case Result::InProgress: return "NCCL operation in progress";
  }
  return "unknown result code";
}

EXPORT const char* ncclGetLastError(Communicator*) { return last_error.c_str(); }

EXPORT Result ncclGroupStart() {
  Line("ncclGroupStart").add("depth", depth);
  ++depth;
  return Result::Success;
}

EXPORT Result ncclGroupEnd() {
  return guarded("GroupEnd", [&] {
    if (depth == 0) throw Failure(Result::InvalidUsage, "ncclGroupEnd: not in a group call.");
    Line("ncclGroupEnd").add("depth", depth - 1);
    if (--depth > 0) return;
    const auto calls = std::move(held);
    held.clear();
    for (const auto& call : calls) checked(call.comm);
    run(calls);
  });
}

EXPORT Result ncclAllReduce(const void* send, void* recv, std::size_t count, Type type, Op op,
                            Communicator* comm, Stream* stream) {
  return enqueue({Kind::AllReduce, send, recv, count, type, op, 0, comm, stream});
}

EXPORT Result ncclReduceScatter(const void* send, void* recv, std::size_t count, Type type, Op op,
                                Communicator* comm, Stream* stream) {
  return enqueue({Kind::ReduceScatter, send, recv, count, type, op, 0, comm, stream});
}

EXPORT Result ncclAllGather(const void* send, void* recv, std::size_t count, Type type,
                            Communicator* comm, Stream* stream) {
  return enqueue({Kind::AllGather, send, recv, count, type, Op::Sum, 0, comm, stream});
}

EXPORT Result ncclBroadcast(const void* send, void* recv, std::size_t count, Type type, int root,
                            Communicator* comm, Stream* stream) {
  return enqueue({Kind::Broadcast, send, recv, count, type, Op::Sum, root, comm, stream});
}

EXPORT Result ncclSend(const void* send, std::size_t count, Type type, int peer, Communicator* comm,
                       Stream* stream) {
  return enqueue({Kind::Send, send, nullptr, count, type, Op::Sum, peer, comm, stream});
}

EXPORT Result ncclRecv(void* recv, std::size_t count, Type type, int peer, Communicator* comm,
                       Stream* stream) {
  return enqueue({Kind::Recv, nullptr, recv, count, type, Op::Sum, peer, comm, stream});
}
