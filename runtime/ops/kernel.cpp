#include "kernel.hpp"

#include <algorithm>
#include <cstring>

#include "cuda/side_stream.hpp"
#include "overlap/transfers.hpp"
#include "progress.hpp"
#include "run.hpp"

namespace tensoropt {

Kernel::Kernel(const Api& api, const CollectiveOp& op, const OrtKernelInfo* info)
    : api_(api), form_(op.form), node_(lasting(op.node(api, info))), collective_{op.form.kind},
      place_(op.place) {
  located(node_, [&] { prepare(info); });
}

void Kernel::prepare(const OrtKernelInfo* info) {
  collective_ = read_collective({api_, info}, form_);
  if (!on_device()) return;
  cuda_device_count();
  if (collective_.group.size() > 1) nccl();
  arena_ = arena_of(api_, info);
}

Kernel::Input Kernel::input(OrtKernelContext* context) const {
  if (!form_.kind->has_x) return {element_info(collective_.type), collective_.shape, nullptr};
  const auto* x = api_.input(context, 0);
  auto [type, shape] = api_.type_and_shape(x);
  Input found{element_info(type), std::move(shape), api_.data(x)};
  if (!form_.kind->has_rows) return found;
  const auto* rows = api_.input(context, 1);
  found.rows = static_cast<const std::int64_t*>(api_.data(rows));
  found.row_counts = count_of(api_.type_and_shape(rows).second);
  return found;
}

Shape Kernel::output_shape(const Input& x) const {
  if (!form_.kind->has_rows) return collective_.output_shape(x.shape);
  return collective_.output_shape(x.shape, x.rows, x.row_counts);
}

// The bytes of x that a simulated link sends. The rows of a kind that has them are counted as if
// all places took an equal part of the rows that this rank sends to or receives from others.
std::size_t Kernel::linked_bytes(const Input& x) const {
  const auto ranks = collective_.group.size();
  if (!x.rows || ranks == 1) return count_of(x.shape) * x.element.bytes;
  const auto row_bytes = count_of_row(x.shape) * x.element.bytes;
  std::size_t sent = 0, received = 0;
  for (std::size_t place = 0; place < ranks; ++place) {
    if (collective_.group[place] == job_rank()) continue;
    sent += std::size_t(x.rows[2 * place]);
    received += std::size_t(x.rows[2 * place + 1]);
  }
  return row_bytes * std::max(sent, received) * ranks / (ranks - 1);
}

void Kernel::compute(OrtKernelContext* context) {
  const Held held;
  located(node_, [&] {
    wait_for_transfers(context);
    const InCollective now(node_, on_device());
    go(context);
  });
}

void Kernel::wait_for_transfers(OrtKernelContext* context) const {
  if (!on_device()) transfers().wait_for_all();
  else if (flights().any()) side_stream().wait_for_all(api_.stream(context));
}

void Kernel::go(OrtKernelContext* context) {
  const auto x = input(context);
  if (!has_met()) {
    output_shape(x);  // throws before anything is sent
    meet(collective_.describe(x.element, x.shape));
  }
  with_transport(context, x.element, linked_bytes(x),
                 [&](Transport& transport) { move(context, x, transport); });
  pass_token(context, form_.kind->token_in(), form_.kind->token_out());
}

// Runs only at a node's first run, where it detects a wrong plan; later steps do not pay for it. On
// a device this is required: none of it could be captured into a CUDA graph.
void Kernel::meet(const std::string& what) {
  require_mpi();
  const auto comm = communicator(collective_.group);
  check_agreement(comm, what + (on_device() ? " over NCCL" : " over MPI"));
  if (on_device() && collective_.group.size() > 1)
    nccl_ = &nccl_group(collective_.group, comm, arena_->device());
  comm_ = comm;
}

void Kernel::move(OrtKernelContext* context, const Input& x, Transport& transport) const {
  void* y = nullptr;
  if (form_.kind->has_y) y = api_.output(context, 0, output_shape(x));
  run(collective_, x.element, x.shape, x.data, y, transport, x.rows);
}

void Kernel::pass_token(OrtKernelContext* context, std::size_t in, std::size_t out) const {
  const void* token = api_.data(api_.input(context, in));
  void* token_out = api_.output(context, out, {1});
  if (token_out) copy(context, token, token_out, sizeof(std::int64_t));
}

void Kernel::copy(OrtKernelContext* context, const void* from, void* to, std::size_t bytes) const {
  if (from == to || bytes == 0) return;
  if (on_device()) copy_on_device(from, to, bytes, api_.stream(context));
  else std::memcpy(to, from, bytes);
}

}  // namespace tensoropt
