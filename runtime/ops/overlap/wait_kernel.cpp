#include "overlap/wait_kernel.hpp"

#include <cstring>

#include "cuda/cuda_api.hpp"
#include "progress.hpp"

namespace tensoropt {

WaitKernel::WaitKernel(const Api& api, const CollectiveOp& op, const OrtKernelInfo* info)
    : api_(api), form_(op.form), place_(op.place), node_(op.node(api, info)) {}

// Errors of the transfer are prefixed with the node that started it.
void WaitKernel::compute(OrtKernelContext* context) const {
  const Held held;
  std::unique_ptr<Flight> flight;
  const auto count = api_.output_count(context);
  located(node_, [&] {
    flight = flights().take(api_.data(api_.input(context, 0)),
                            [&](const Flight& found) { check(context, found, count); });
  });
  flight->join(place_ == Place::Host ? nullptr : api_.stream(context));
  for (std::size_t i = 0; i < count; ++i) give(context, i);
}

void WaitKernel::check(OrtKernelContext* context, const Flight& flight, std::size_t count) const {
  if (flight.kind != form_.name())
    throw Error("expected the handle of another kind, got: that of " + flight.kind + "Start");
  const auto expected = 1 + count + flight.reads.size(), inputs = api_.input_count(context);
  if (inputs != expected)
    throw Error("expected " + std::to_string(expected) + " inputs: the handle, all y" +
                (flight.reads.empty() ? "" : " and all x") + ", got: " + std::to_string(inputs));
  for (std::size_t i = 0; i < flight.reads.size(); ++i)
    if (api_.data(api_.input(context, 1 + count + i)) != flight.reads[i])
      throw Error("expected x" + std::to_string(i + 1) + " of its start as input " +
                  std::to_string(1 + count + i) + ", got: another tensor");
}

void WaitKernel::give(OrtKernelContext* context, std::size_t number) const {
  const auto* y = api_.input(context, number + 1);
  const auto [type, shape] = api_.type_and_shape(y);
  const void* from = api_.data(y);
  void* to = api_.output(context, number, shape);
  const auto bytes = count_of(shape) * element_info(type).bytes;
  if (to == from || bytes == 0) return;
  if (place_ == Place::Host) std::memcpy(to, from, bytes);
  else copy_on_device(from, to, bytes, api_.stream(context));
}

}  // namespace tensoropt
