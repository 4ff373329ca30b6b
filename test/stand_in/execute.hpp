// Communication calls, and their execution over MPI.
#pragma once

#include <vector>

#include "communicator.hpp"

namespace stand_in {

enum class Kind { AllReduce, AllGather, ReduceScatter, Broadcast, Send, Recv };

const char* call_name(Kind kind);

// A call as it was made. `count` is NCCL's: the elements this rank puts in, of ReduceScatter those
// it takes out. `peer`: the root of a Broadcast, the other rank of a Send or Recv.
struct Operation {
  Kind kind;
  const void* send;
  void* recv;
  std::size_t count;
  Type type;
  Op op;
  int peer;
  Communicator* comm;
  Stream* stream;

  bool is_point_to_point() const { return kind == Kind::Send || kind == Kind::Recv; }
  bool has_op() const { return kind == Kind::AllReduce || kind == Kind::ReduceScatter; }
  bool has_peer() const { return is_point_to_point() || kind == Kind::Broadcast; }
};

// Runs what one group holds, or one call: first the sends and receives, all at once, then the
// collectives in order. Returns when the results are in their places.
// Throws where ranks call different things, or a message is not as long as what awaits it.
void execute(const std::vector<Operation>& operations);

}  // namespace stand_in
