// Memory of a stand-in GPU: the host's, in files without a name, which other processes can map and
// which are gone with the last that does, however it ends.
#pragma once

#include <cstddef>

#include "cudart_abi.hpp"

namespace stand_in {

// TENSOROPT_STAND_IN_FULL names a file: while it is there, no GPU has memory left.
CudaError allocate(void** address, std::size_t bytes);
CudaError release(void* address);

// TENSOROPT_STAND_IN_APART names a file: while it is there, no GPU reaches memory of another
// process.
CudaError handle_of(MemoryHandle* handle, void* address);
CudaError open_handle(void** address, const MemoryHandle& handle);
CudaError close_handle(void* address);

CudaError pin(void* address, std::size_t bytes);
CudaError unpin(void* address);

}  // namespace stand_in
