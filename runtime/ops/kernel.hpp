// One collective node of a session.
#pragma once

#include <mpi.h>

#include <memory>

#include "cuda/nccl_transport.hpp"
#include "mpi/group.hpp"
#include "mpi/mpi_transport.hpp"
#include "ort/arena.hpp"
#include "ort/custom_op.hpp"

namespace tensoropt {

class Kernel {
 public:
  // Reads and checks the node's attributes, and that what its place needs is there; nothing is sent
  // yet.
  Kernel(const Api& api, Kind kind, Place place, const OrtKernelInfo* info);
  virtual ~Kernel() = default;
  Kernel(const Kernel&) = delete;

  void compute(OrtKernelContext* context);

  const Api& api() const { return api_; }

 protected:
  // `node` is what errors begin with.
  Kernel(const Api& api, Place place, const std::string& node, Kind kind);

  // Inputs (x, token int64[1]), outputs (y, token_out); see Signature.
  virtual void go(OrtKernelContext* context);

  // Gets ready what moves the tensors of `collective`.
  void prepare(const OrtKernelInfo* info, Collective collective);

  // Compares `what` this node does with its group.
  void meet(const std::string& what);

  bool has_met() const { return comm_ != MPI_COMM_NULL; }

  // Calls `body` with the transport of one run.
  template <class Body>
  void with_transport(OrtKernelContext* context, const ElementInfo& element, const Body& body) {
    if (on_device()) {
      NcclTransport transport(api_, context, *arena_, nccl_, element);
      body(transport);
    } else {
      require_mpi();
      MpiTransport transport(comm_, element);
      body(transport);
    }
  }

  // Gives on the token, input `in`, as output `out`.
  void pass_token(OrtKernelContext* context, std::size_t in, std::size_t out,
                  Transport& transport) const;

  Api api_;
  const std::string& node_;  // "AllReduce node 'name'"
  Collective collective_;

 private:
  // A tensor on its way in: no data where the node has no x.
  struct Input {
    const ElementInfo& element;
    Shape shape;
    const void* data;
  };

  Input input(OrtKernelContext* context) const;
  void move(OrtKernelContext* context, const Input& x, Transport& transport) const;

  bool on_device() const { return place_ == Place::Device; }

  Place place_;
  std::shared_ptr<Arena> arena_;  // on the device
  MPI_Comm comm_ = MPI_COMM_NULL;
  NcclGroup* nccl_ = nullptr;  // on the device, where the group is more than this rank
};

}  // namespace tensoropt
