// What the stand-in of NCCL asks of that of the CUDA runtime, if the process has loaded one.
#pragma once

namespace stand_in {

struct Stream;

int current_device();

// Returns whether work on this stream runs late (`late.hpp`), which then calls `work` with `what`.
bool runs_later(const Stream* stream, void (*work)(void*), void* what);

}  // namespace stand_in
