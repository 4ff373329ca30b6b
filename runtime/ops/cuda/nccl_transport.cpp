#include "cuda/nccl_transport.hpp"

namespace tensoropt {
namespace {

NcclType type_of(Element element) {
  switch (element) {
    case Element::Float32: return NcclType::Float32;
    case Element::Float64: return NcclType::Float64;
    case Element::Float16: return NcclType::Float16;
    case Element::BFloat16: return NcclType::BFloat16;
    case Element::Int32: return NcclType::Int32;
    case Element::Int64: return NcclType::Int64;
    case Element::Int8: return NcclType::Int8;
    default: return NcclType::UInt8;  // also bool: 0 or 1
  }
}

// Calls `body`, which returns NCCL's first error, as one launch.
template <class Body>
void in_group(const char* function, Body body) {
  check_nccl("ncclGroupStart", nccl().ncclGroupStart());
  const int result = body();
  const int end = nccl().ncclGroupEnd();  // also after an error, to close the group
  check_nccl(function, result);
  check_nccl("ncclGroupEnd", end);
}

}  // namespace

NcclTransport::NcclTransport(OrtKernelContext* context, const Arena& arena, const NcclGroup* group,
                             const ElementInfo& element, CudaStream stream)
    : context_(context), arena_(arena), element_(element), stream_(stream),
      comm_(group ? group->comm() : nullptr), ranks_(group ? group->ranks() : 1) {}

NcclTransport::~NcclTransport() {
  for (void* memory : scratch_) arena_.give_back(memory);
}

// "or" of 0 and 1 is their maximum.
NcclOp NcclTransport::op(Reduction reduction) const {
  if (reduction == Reduction::Min) return NcclOp::Min;
  const bool is_sum = reduction == Reduction::Sum && element_.type != Element::Bool;
  return is_sum ? NcclOp::Sum : NcclOp::Max;
}

void NcclTransport::all_reduce(const void* x, void* y, std::size_t count, Reduction reduction) {
  check_nccl("ncclAllReduce", nccl().ncclAllReduce(x, y, count, type_of(element_.type),
                                                   op(reduction), comm_, stream_));
}

void NcclTransport::all_gather(const void* x, void* y, std::size_t count, std::size_t rows) {
  in_group("ncclAllGather", [&] {
    int result = 0;
    for (std::size_t row = 0; row < rows && !result; ++row)
      result = nccl().ncclAllGather(at(x, bytes(row * count)),
                                    at(y, bytes(row * count) * std::size_t(ranks_)), count,
                                    type_of(element_.type), comm_, stream_);
    return result;
  });
}

void NcclTransport::reduce_scatter(const void* x, void* y, std::size_t count, std::size_t rows,
                                   Reduction reduction) {
  in_group("ncclReduceScatter", [&] {
    int result = 0;
    for (std::size_t row = 0; row < rows && !result; ++row)
      result = nccl().ncclReduceScatter(at(x, bytes(row * count) * std::size_t(ranks_)),
                                        at(y, bytes(row * count)), count, type_of(element_.type),
                                        op(reduction), comm_, stream_);
    return result;
  });
}

void NcclTransport::all_to_all(const void* x, void* y, std::size_t count) {
  const std::vector<std::size_t> equal(std::size_t(ranks_), count);
  all_to_all_unequal(x, equal.data(), y, equal.data());
}

void NcclTransport::all_to_all_unequal(const void* x, const std::size_t* sent, void* y,
                                       const std::size_t* received) {
  const auto type = type_of(element_.type);
  in_group("ncclSend and ncclRecv", [&] {
    int result = 0;
    std::size_t from = 0, to = 0;
    for (int place = 0; place < ranks_ && !result; ++place) {
      const auto out = sent[place], in = received[place];
      if (out) result = nccl().ncclSend(at(x, bytes(from)), out, type, place, comm_, stream_);
      if (in && !result)
        result = nccl().ncclRecv(at(y, bytes(to)), in, type, place, comm_, stream_);
      from += out;
      to += in;
    }
    return result;
  });
}

void NcclTransport::exchange(const void* x, void* y, std::size_t count, int to, int from) {
  const auto type = type_of(element_.type);
  in_group("ncclSend and ncclRecv", [&] {
    const int result = nccl().ncclSend(x, count, type, to, comm_, stream_);
    return result ? result : nccl().ncclRecv(y, count, type, from, comm_, stream_);
  });
}

// Nested groups become part of this group.
void NcclTransport::as_one(const std::function<void()>& body) {
  check_nccl("ncclGroupStart", nccl().ncclGroupStart());
  try {
    body();
  } catch (...) {
    nccl().ncclGroupEnd();
    throw;
  }
  check_nccl("ncclGroupEnd", nccl().ncclGroupEnd());
}

void NcclTransport::broadcast(const void* x, void* y, std::size_t count, int root) {
  check_nccl("ncclBroadcast",
             nccl().ncclBroadcast(x, y, count, type_of(element_.type), root, comm_, stream_));
}

void NcclTransport::send(const void* x, std::size_t count, int place) {
  check_nccl("ncclSend", nccl().ncclSend(x, count, type_of(element_.type), place, comm_, stream_));
}

void NcclTransport::recv(void* y, std::size_t count, int place) {
  check_nccl("ncclRecv", nccl().ncclRecv(y, count, type_of(element_.type), place, comm_, stream_));
}

void NcclTransport::copy(const void* from, void* to, std::size_t bytes) {
  copy_on_device(from, to, bytes, stream_);
}

void NcclTransport::pack(const Cut& cut, const void* tensor, void* pieces) {
  const auto chunk = cut.chunk_bytes, row = cut.pieces * chunk;
  for (std::size_t piece = 0; piece < cut.pieces; ++piece)
    copy_rows_on_device(at(tensor, piece * chunk), row, at(pieces, piece * cut.outer * chunk),
                        chunk, chunk, cut.outer, stream_);
}

void NcclTransport::unpack(const Cut& cut, const void* pieces, void* tensor) {
  const auto chunk = cut.chunk_bytes, row = cut.pieces * chunk;
  for (std::size_t piece = 0; piece < cut.pieces; ++piece)
    copy_rows_on_device(at(pieces, piece * cut.outer * chunk), chunk, at(tensor, piece * chunk),
                        row, chunk, cut.outer, stream_);
}

void* NcclTransport::scratch(std::size_t, std::size_t bytes) {
  return scratch_.emplace_back(arena_.take(context_, bytes));
}

}  // namespace tensoropt
