// Collectives over NCCL, on device memory, enqueued on a stream: no function waits.
#pragma once

#include <limits>
#include <vector>

#include "cuda/nccl_group.hpp"
#include "ort/arena.hpp"
#include "transport.hpp"

namespace tensoropt {

class NcclTransport final : public Transport {
 public:
  // `group` is null if it has this rank only.
  NcclTransport(OrtKernelContext* context, const Arena& arena, const NcclGroup* group,
                const ElementInfo& element, CudaStream stream);

  // Frees the scratch memory, which later work on ONNX Runtime's stream may reuse. So if `stream`
  // is another stream, ONNX Runtime's must wait for it first.
  ~NcclTransport() override;

  // Four calls in one launch cost less than a copy of the whole tensor, there and back.
  std::size_t most_rows() const override { return 4; }

  // Packs all pieces, as each call is a launch; ONNX Runtime's arena reuses the memory.
  std::size_t most_packed() const override { return std::numeric_limits<std::size_t>::max(); }

  void all_reduce(const void* x, void* y, std::size_t count, Reduction reduction) override;
  void all_gather(const void* x, void* y, std::size_t count, std::size_t rows) override;
  void reduce_scatter(const void* x, void* y, std::size_t count, std::size_t rows,
                      Reduction reduction) override;
  void all_to_all(const void* x, void* y, std::size_t count) override;
  void all_to_all_unequal(const void* x, const std::size_t* sent, void* y,
                          const std::size_t* received) override;
  void exchange(const void* x, void* y, std::size_t count, int to, int from) override;
  void broadcast(const void* x, void* y, std::size_t count, int root) override;
  void send(const void* x, std::size_t count, int place) override;
  void recv(void* y, std::size_t count, int place) override;
  bool launches() const override { return true; }
  void as_one(const std::function<void()>& body) override;
  void copy(const void* from, void* to, std::size_t bytes) override;
  void pack(const Cut& cut, const void* tensor, void* pieces) override;
  void unpack(const Cut& cut, const void* pieces, void* tensor) override;
  void* scratch(std::size_t index, std::size_t bytes) override;

 private:
  NcclOp op(Reduction reduction) const;
  std::size_t bytes(std::size_t count) const { return count * element_.bytes; }

  OrtKernelContext* context_;
  const Arena& arena_;
  const ElementInfo& element_;
  CudaStream stream_;
  NcclComm comm_;
  int ranks_;
  std::vector<void*> scratch_;  // freed by the destructor
};

}  // namespace tensoropt
