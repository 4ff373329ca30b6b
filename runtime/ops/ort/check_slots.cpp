// Compiled only if CMake finds onnxruntime_c_api.h: checks our slot numbers and fields against it.
#include <cstddef>

#include <onnxruntime_c_api.h>

#include "ort/ort_api.hpp"

#define CHECK_SLOT(name)                                                                         \
  static_assert(                                                                                 \
      offsetof(OrtApi, name) == static_cast<std::size_t>(tensoropt::Slot::name) * sizeof(void*), \
      "slot of OrtApi::" #name)

CHECK_SLOT(CreateStatus);
CHECK_SLOT(GetErrorMessage);
CHECK_SLOT(CreateCustomOpDomain);
CHECK_SLOT(CustomOpDomain_Add);
CHECK_SLOT(AddCustomOpDomain);
CHECK_SLOT(GetTensorMutableData);
CHECK_SLOT(CreateTensorTypeAndShapeInfo);
CHECK_SLOT(SetTensorElementType);
CHECK_SLOT(SetDimensions);
CHECK_SLOT(GetTensorElementType);
CHECK_SLOT(GetDimensionsCount);
CHECK_SLOT(GetDimensions);
CHECK_SLOT(GetTensorTypeAndShape);
CHECK_SLOT(MemoryInfoGetName);
CHECK_SLOT(MemoryInfoGetId);
CHECK_SLOT(AllocatorFree);
CHECK_SLOT(AllocatorGetInfo);
CHECK_SLOT(KernelInfoGetAttribute_float);
CHECK_SLOT(KernelInfoGetAttribute_int64);
CHECK_SLOT(KernelInfoGetAttribute_string);
CHECK_SLOT(KernelContext_GetInputCount);
CHECK_SLOT(KernelContext_GetOutputCount);
CHECK_SLOT(KernelContext_GetInput);
CHECK_SLOT(KernelContext_GetOutput);
CHECK_SLOT(ReleaseStatus);
CHECK_SLOT(ReleaseTensorTypeAndShapeInfo);
CHECK_SLOT(ReleaseAllocator);
CHECK_SLOT(KernelInfoGetAttributeArray_int64);
CHECK_SLOT(KernelContext_GetGPUComputeStream);
CHECK_SLOT(HasSessionConfigEntry);
CHECK_SLOT(GetSessionConfigEntry);
CHECK_SLOT(KernelInfo_GetNodeName);
CHECK_SLOT(ShapeInferContext_GetInputCount);
CHECK_SLOT(ShapeInferContext_GetInputTypeShape);
CHECK_SLOT(ShapeInferContext_GetAttribute);
CHECK_SLOT(ShapeInferContext_SetOutputTypeShape);
CHECK_SLOT(ReadOpAttr);
CHECK_SLOT(KernelContext_ParallelFor);
CHECK_SLOT(KernelContext_GetScratchBuffer);
CHECK_SLOT(KernelInfoGetAllocator);
CHECK_SLOT(GetKeyValue);
CHECK_SLOT(ReleaseKeyValuePairs);
CHECK_SLOT(AllocatorGetStats);

#define CHECK_FIELD(name)                                                           \
  static_assert(offsetof(OrtCustomOp, name) == offsetof(tensoropt::CustomOp, name), \
                "field OrtCustomOp::" #name)

CHECK_FIELD(CreateKernel);
CHECK_FIELD(GetName);
CHECK_FIELD(GetExecutionProviderType);
CHECK_FIELD(GetInputType);
CHECK_FIELD(GetInputTypeCount);
CHECK_FIELD(GetOutputType);
CHECK_FIELD(GetOutputTypeCount);
CHECK_FIELD(KernelCompute);
CHECK_FIELD(KernelDestroy);
CHECK_FIELD(GetInputCharacteristic);
CHECK_FIELD(GetOutputCharacteristic);
CHECK_FIELD(GetInputMemoryType);
CHECK_FIELD(GetVariadicInputMinArity);
CHECK_FIELD(GetVariadicInputHomogeneity);
CHECK_FIELD(GetVariadicOutputMinArity);
CHECK_FIELD(GetVariadicOutputHomogeneity);
CHECK_FIELD(CreateKernelV2);
CHECK_FIELD(KernelComputeV2);
CHECK_FIELD(InferOutputShapeFn);
CHECK_FIELD(GetStartVersion);
CHECK_FIELD(GetEndVersion);
CHECK_FIELD(GetMayInplace);
CHECK_FIELD(ReleaseMayInplace);
CHECK_FIELD(GetAliasMap);
CHECK_FIELD(ReleaseAliasMap);
