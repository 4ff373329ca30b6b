// The nodes that start a collective, and the nodes that wait for it.
#pragma once

#include "ort/custom_op.hpp"
#include "overlap/start_kernel.hpp"

namespace tensoropt {

inline constexpr Startable kStartable[] = {
    {Kind::AllReduce, false},    {Kind::AllGather, false}, {Kind::ReduceScatter, false},
    {Kind::AllToAll, false},     {Kind::AllReduce, true},  {Kind::AllGather, true},
    {Kind::ReduceScatter, true},
};

// The start and the wait of every one of `kStartable`.
std::vector<CustomOp> overlap_ops(Place place);

}  // namespace tensoropt
