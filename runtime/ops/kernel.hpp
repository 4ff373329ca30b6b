// One collective node of a session.
#pragma once

#include <mpi.h>

#include <memory>

#include "cuda/nccl_group.hpp"
#include "ort/arena.hpp"
#include "ort/custom_op.hpp"
#include "transport.hpp"

namespace tensoropt {

class Kernel {
 public:
  // Reads and checks the node's attributes, and that what its place needs is there; nothing is sent
  // yet.
  Kernel(const Api& api, Kind kind, Place place, const OrtKernelInfo* info);

  // Inputs (x, token int64[1]), outputs (y, token_out); see Signature.
  void compute(OrtKernelContext* context);

  const Api& api() const { return api_; }

 private:
  // A tensor on its way in: no data where the node has no x.
  struct Input {
    const ElementInfo& element;
    Shape shape;
    const void* data;
  };

  void prepare(const OrtKernelInfo* info);
  Input input(OrtKernelContext* context) const;
  void meet(const Input& x);
  void move(OrtKernelContext* context, const Input& x, Transport& transport) const;

  bool on_device() const { return place_ == Place::Device; }

  Api api_;
  Place place_;
  const std::string& node_;  // "AllReduce node 'name'"
  Collective collective_;
  std::shared_ptr<Arena> arena_;  // on the device
  MPI_Comm comm_ = MPI_COMM_NULL;
  NcclGroup* nccl_ = nullptr;  // on the device, where the group is more than this rank
};

}  // namespace tensoropt
