// Slots of the functions of ONNX Runtime's C interface that this library calls.
//
// The wheels of ONNX Runtime have no headers. Its interface is a table of function pointers to
// which releases only append, so a slot number is valid in every later release. check_slots.cpp
// compares each number with offsetof at compile time, if the real header is found.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tensoropt {

// The requested interface version: the first with the whole of CustomOp (ORT 1.18).
inline constexpr std::uint32_t kApiVersion = 18;

// The interface version with allocator statistics, requested if available.
inline constexpr std::uint32_t kStatsApiVersion = 23;

// NOLINTBEGIN(readability-identifier-naming): the names are ONNX Runtime's
enum class Slot : std::size_t {
  CreateStatus = 0,
  GetErrorMessage = 2,
  CreateCustomOpDomain = 26,
  CustomOpDomain_Add = 27,
  AddCustomOpDomain = 28,
  GetTensorMutableData = 51,
  CreateTensorTypeAndShapeInfo = 57,
  SetTensorElementType = 58,
  SetDimensions = 59,
  GetTensorElementType = 60,
  GetDimensionsCount = 61,
  GetDimensions = 62,
  GetTensorTypeAndShape = 65,
  MemoryInfoGetName = 71,
  MemoryInfoGetId = 72,
  AllocatorFree = 76,
  AllocatorGetInfo = 77,
  KernelInfoGetAttribute_float = 85,
  KernelInfoGetAttribute_int64 = 86,
  KernelInfoGetAttribute_string = 87,
  KernelContext_GetInputCount = 88,
  KernelContext_GetOutputCount = 89,
  KernelContext_GetInput = 90,
  KernelContext_GetOutput = 91,
  ReleaseStatus = 93,
  ReleaseTensorTypeAndShapeInfo = 99,
  ReleaseAllocator = 132,
  KernelInfoGetAttributeArray_int64 = 163,
  KernelContext_GetGPUComputeStream = 193,
  HasSessionConfigEntry = 237,
  GetSessionConfigEntry = 238,
  KernelInfo_GetNodeName = 244,
  ShapeInferContext_GetInputCount = 267,
  ShapeInferContext_GetInputTypeShape = 268,
  ShapeInferContext_GetAttribute = 269,
  ShapeInferContext_SetOutputTypeShape = 270,
  ReadOpAttr = 272,
  KernelContext_ParallelFor = 274,
  KernelContext_GetScratchBuffer = 277,
  KernelInfoGetAllocator = 278,
  GetKeyValue = 297,
  ReleaseKeyValuePairs = 300,
  AllocatorGetStats = 319,
};
// NOLINTEND(readability-identifier-naming)

}  // namespace tensoropt
