// Facts about CUDA and NCCL on this machine.
#pragma once

#include <string>

namespace tensoropt {

// {"nccl": "2.32.3", "cuda": "13.0", "driver": "13.0", "gpus": [bytes of memory, ...], "names":
// ["NVIDIA H100", ...]}: the versions of NCCL, of the CUDA runtime and of the newest CUDA that the
// driver supports; or {"error": "the fault and its remedy"}. Creates no context on a GPU.
std::string cuda_facts();

// Bytes in use on a device, by all processes; -1 if unknown. Creates a context on it.
long long device_used_bytes(int device);

}  // namespace tensoropt
