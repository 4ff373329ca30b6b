// The kernel of a collective node.
#pragma once

#include <mpi.h>

#include <memory>

#include "collective_op.hpp"
#include "cuda/nccl_transport.hpp"
#include "link.hpp"
#include "mpi/group.hpp"
#include "mpi/mpi_transport.hpp"
#include "ort/arena.hpp"

namespace tensoropt {

class Kernel {
 public:
  // Reads and checks the node's attributes, and checks that the libraries for its place are
  // available. Sends nothing.
  Kernel(const Api& api, const CollectiveOp& op, const OrtKernelInfo* info);
  virtual ~Kernel() = default;
  Kernel(const Kernel&) = delete;

  virtual void compute(OrtKernelContext* context);

  const Api& api() const { return api_; }

 protected:
  // Inputs (x, token int64[1]), outputs (y, token_out); see Kind.
  virtual void go(OrtKernelContext* context);

  // Compares `what`, the description of this node, with the other ranks of its group.
  void meet(const std::string& what);

  bool has_met() const { return comm_ != MPI_COMM_NULL; }

  // Calls `body` with the transport of one run; `bytes` is the size of this rank's operands.
  template <class Body>
  void with_transport(OrtKernelContext* context, const ElementInfo& element, std::size_t bytes,
                      const Body& body) {
    if (on_device()) {
      NcclTransport transport(context, *arena_, nccl_, element, api_.stream(context));
      body(transport);
    } else {
      on_host(element, bytes, Waiting::Awake, body);
    }
  }

  template <class Body>
  void on_host(const ElementInfo& element, std::size_t bytes, Waiting waiting,
               const Body& body) const {
    require_mpi();
    wait_for_link(*form_.kind, collective_.group.size(), bytes);
    MpiTransport transport(comm_, element, waiting);
    body(transport);
  }

  // Copies in the memory of `place_`, in the order of the node's stream.
  void copy(OrtKernelContext* context, const void* from, void* to, std::size_t bytes) const;

  // Passes the token from input `in` to output `out`.
  void pass_token(OrtKernelContext* context, std::size_t in, std::size_t out) const;

  // Waits for transfers that were started before: the ranks of a group run all in one order.
  void wait_for_transfers(OrtKernelContext* context) const;

  bool on_device() const { return place_ == Place::Device; }
  const Arena& arena() const { return *arena_; }
  const NcclGroup* nccl() const { return nccl_; }

  Api api_;
  Form form_;
  const std::string& node_;  // "AllReduce node 'name'", the prefix of errors
  Collective collective_;

 private:
  // An operand; `data` is null if the node has no x. `rows` is null for a kind without rows.
  struct Input {
    const ElementInfo& element;
    Shape shape;
    const void* data;
    const std::int64_t* rows = nullptr;
    std::size_t row_counts = 0;
  };

  void prepare(const OrtKernelInfo* info);
  Input input(OrtKernelContext* context) const;
  Shape output_shape(const Input& x) const;
  std::size_t linked_bytes(const Input& x) const;
  void move(OrtKernelContext* context, const Input& x, Transport& transport) const;

  Place place_;
  std::shared_ptr<Arena> arena_;  // on the device
  MPI_Comm comm_ = MPI_COMM_NULL;
  NcclGroup* nccl_ = nullptr;  // on the device, if the group has several ranks
};

}  // namespace tensoropt
