// Compiled only where NVIDIA's headers are found: our declarations against theirs.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <type_traits>

#include "cudart_abi.hpp"
#include "nccl_abi.hpp"

namespace stand_in {

static_assert(sizeof(ncclUniqueId) == sizeof(UniqueId) && alignof(ncclUniqueId) == 1);
static_assert(NCCL_UNIQUE_ID_BYTES == kUniqueIdBytes);
static_assert(sizeof(ncclResult_t) == sizeof(int) && sizeof(ncclDataType_t) == sizeof(int));
static_assert(sizeof(ncclRedOp_t) == sizeof(int) && sizeof(cudaError_t) == sizeof(int));
static_assert(std::is_pointer_v<ncclComm_t> && std::is_pointer_v<cudaStream_t>);

#define SAME(ours, theirs) static_assert(int(ours) == int(theirs))

SAME(Result::Success, ncclSuccess);
SAME(Result::UnhandledCudaError, ncclUnhandledCudaError);
SAME(Result::SystemError, ncclSystemError);
SAME(Result::InternalError, ncclInternalError);
SAME(Result::InvalidArgument, ncclInvalidArgument);
SAME(Result::InvalidUsage, ncclInvalidUsage);
SAME(Result::RemoteError, ncclRemoteError);
SAME(Result::InProgress, ncclInProgress);
SAME(Op::Sum, ncclSum);
SAME(Op::Prod, ncclProd);
SAME(Op::Max, ncclMax);
SAME(Op::Min, ncclMin);
SAME(Op::Avg, ncclAvg);
SAME(kOps, ncclNumOps);
SAME(Type::Int8, ncclInt8);
SAME(Type::UInt8, ncclUint8);
SAME(Type::Int32, ncclInt32);
SAME(Type::UInt32, ncclUint32);
SAME(Type::Int64, ncclInt64);
SAME(Type::UInt64, ncclUint64);
SAME(Type::Float16, ncclFloat16);
SAME(Type::Float32, ncclFloat32);
SAME(Type::Float64, ncclFloat64);
SAME(Type::BFloat16, ncclBfloat16);
SAME(Type::Float8E4M3, ncclFloat8e4m3);
SAME(Type::Float8E5M2, ncclFloat8e5m2);
SAME(kTypes, ncclNumTypes);

SAME(CudaError::Success, cudaSuccess);
SAME(CudaError::InvalidValue, cudaErrorInvalidValue);
SAME(CudaError::MemoryAllocation, cudaErrorMemoryAllocation);
SAME(CudaError::InvalidPitchValue, cudaErrorInvalidPitchValue);
SAME(CudaError::InvalidMemcpyDirection, cudaErrorInvalidMemcpyDirection);
SAME(CudaError::InsufficientDriver, cudaErrorInsufficientDriver);
SAME(CudaError::NoDevice, cudaErrorNoDevice);
SAME(CudaError::InvalidDevice, cudaErrorInvalidDevice);
SAME(CudaError::DeviceUninitialized, cudaErrorDeviceUninitialized);
SAME(CudaError::MapBufferObjectFailed, cudaErrorMapBufferObjectFailed);
SAME(CudaError::HostMemoryAlreadyRegistered, cudaErrorHostMemoryAlreadyRegistered);
SAME(CudaError::HostMemoryNotRegistered, cudaErrorHostMemoryNotRegistered);
static_assert(offsetof(DeviceProperties, uuid) == offsetof(cudaDeviceProp, uuid));
static_assert(sizeof(DeviceProperties::uuid) == sizeof(cudaUUID_t));
static_assert(sizeof(MemoryHandle) == sizeof(cudaIpcMemHandle_t));
static_assert(sizeof(BoxCopy) == sizeof(cudaMemcpy3DParms));
static_assert(offsetof(BoxCopy, from_offset) == offsetof(cudaMemcpy3DParms, srcPos));
static_assert(offsetof(BoxCopy, from) == offsetof(cudaMemcpy3DParms, srcPtr));
static_assert(offsetof(BoxCopy, to_offset) == offsetof(cudaMemcpy3DParms, dstPos));
static_assert(offsetof(BoxCopy, to) == offsetof(cudaMemcpy3DParms, dstPtr));
static_assert(offsetof(BoxCopy, width) == offsetof(cudaMemcpy3DParms, extent));
static_assert(offsetof(BoxCopy, kind) == offsetof(cudaMemcpy3DParms, kind));
static_assert(offsetof(Place, rows) == offsetof(cudaPitchedPtr, ysize));
static_assert(offsetof(Offset, slice) == offsetof(cudaPos, z));
static_assert(offsetof(DeviceProperties, total_memory) == offsetof(cudaDeviceProp, totalGlobalMem));
SAME(kMemcpyDeviceToDevice, cudaMemcpyDeviceToDevice);
SAME(kMemcpyKinds - 1, cudaMemcpyDefault);

// The functions' own signatures, as far as the compiler can hold them against each other.
static_assert(std::is_same_v<decltype(&ncclAllReduce),
                             ncclResult_t (*)(const void*, void*, std::size_t, ncclDataType_t,
                                              ncclRedOp_t, ncclComm_t, cudaStream_t)>);
static_assert(std::is_same_v<decltype(&ncclReduceScatter), decltype(&ncclAllReduce)>);
static_assert(std::is_same_v<decltype(&ncclAllGather),
                             ncclResult_t (*)(const void*, void*, std::size_t, ncclDataType_t,
                                              ncclComm_t, cudaStream_t)>);
static_assert(std::is_same_v<decltype(&ncclBroadcast),
                             ncclResult_t (*)(const void*, void*, std::size_t, ncclDataType_t, int,
                                              ncclComm_t, cudaStream_t)>);
static_assert(
    std::is_same_v<decltype(&ncclSend), ncclResult_t (*)(const void*, std::size_t, ncclDataType_t,
                                                         int, ncclComm_t, cudaStream_t)>);
static_assert(
    std::is_same_v<decltype(&ncclRecv), ncclResult_t (*)(void*, std::size_t, ncclDataType_t, int,
                                                         ncclComm_t, cudaStream_t)>);
static_assert(std::is_same_v<decltype(&ncclCommInitRank),
                             ncclResult_t (*)(ncclComm_t*, int, ncclUniqueId, int)>);

}  // namespace stand_in
