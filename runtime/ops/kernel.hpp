// One collective node of a session.
#pragma once

#include <mpi.h>

#include "collective.hpp"

namespace tensoropt {

class Kernel {
 public:
  // Reads and checks the node's attributes; nothing is sent yet.
  Kernel(const Api &api, Kind kind, const OrtKernelInfo *info);

  // Inputs (x, token int64[1]), outputs (y, token_out).
  void compute(OrtKernelContext *context);

  // "AllReduce node 'name': message", for every error of this node.
  std::string locate(const std::string &message) const;

  const Api &api() const { return api_; }

 private:
  void exchange(int type, const Shape &shape, const void *x, void *y);

  Api api_;
  std::string name_;
  Collective collective_;
  MPI_Comm comm_ = MPI_COMM_NULL;
};

}  // namespace tensoropt
