// What this machine has of CUDA and NCCL.
#pragma once

#include <string>

namespace tensoropt {

// {"nccl": "2.32.3", "cuda": "13.0", "driver": "13.0", "gpus": [bytes of memory, ...], "names":
// ["NVIDIA H100", ...]} with the versions of NCCL, of the CUDA runtime and of the newest one that
// the driver supports; or {"error": "what is missing and what to do"}. Makes no context on a GPU.
std::string cuda_facts();

// Bytes in use on a device, by all processes; -1 if unknown. Makes a context on it.
long long device_used_bytes(int device);

}  // namespace tensoropt
