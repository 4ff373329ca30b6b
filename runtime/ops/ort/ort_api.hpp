// A minimal declaration of ONNX Runtime's C interface: opaque types, functions by slot, and the
// fields of a custom op. Failed calls become C++ exceptions.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "error.hpp"
#include "ort/slots.hpp"
#include "shape.hpp"

namespace tensoropt {

// NOLINTBEGIN(readability-identifier-naming): the names are ONNX Runtime's
struct OrtApi;
struct OrtApiBase {
  const OrtApi* (*GetApi)(std::uint32_t version);
  const char* (*GetVersionString)();
};
struct OrtStatus;
struct OrtSessionOptions;
struct OrtCustomOpDomain;
struct OrtKernelInfo;
struct OrtKernelContext;
struct OrtShapeInferContext;
struct OrtOpAttr;
struct OrtValue;
struct OrtTensorInfo;
struct OrtAllocator;
struct OrtMemoryInfo;
struct OrtKeyValuePairs;

inline constexpr int kFail = 1;       // OrtErrorCode ORT_FAIL
inline constexpr int kAttrInt = 1;    // OrtOpAttrType ORT_OP_ATTR_INT
inline constexpr int kAttrInts = 2;   // OrtOpAttrType ORT_OP_ATTR_INTS
inline constexpr int kUndefined = 0;  // element type: any

// A custom op as ONNX Runtime reads it (OrtCustomOp, version 18).
struct CustomOp {
  std::uint32_t version;
  void* (*CreateKernel)(const CustomOp*, const OrtApi*, const OrtKernelInfo*);
  const char* (*GetName)(const CustomOp*);
  const char* (*GetExecutionProviderType)(const CustomOp*);
  int (*GetInputType)(const CustomOp*, std::size_t);
  std::size_t (*GetInputTypeCount)(const CustomOp*);
  int (*GetOutputType)(const CustomOp*, std::size_t);
  std::size_t (*GetOutputTypeCount)(const CustomOp*);
  void (*KernelCompute)(void*, OrtKernelContext*);
  void (*KernelDestroy)(void*);
  int (*GetInputCharacteristic)(const CustomOp*, std::size_t);
  int (*GetOutputCharacteristic)(const CustomOp*, std::size_t);
  int (*GetInputMemoryType)(const CustomOp*, std::size_t);
  int (*GetVariadicInputMinArity)(const CustomOp*);
  int (*GetVariadicInputHomogeneity)(const CustomOp*);
  int (*GetVariadicOutputMinArity)(const CustomOp*);
  int (*GetVariadicOutputHomogeneity)(const CustomOp*);
  OrtStatus* (*CreateKernelV2)(const CustomOp*, const OrtApi*, const OrtKernelInfo*, void**);
  OrtStatus* (*KernelComputeV2)(void*, OrtKernelContext*);
  OrtStatus* (*InferOutputShapeFn)(const CustomOp*, OrtShapeInferContext*);
  int (*GetStartVersion)(const CustomOp*);
  int (*GetEndVersion)(const CustomOp*);
  std::size_t (*GetMayInplace)(int**, int**);
  void (*ReleaseMayInplace)(int*, int*);
  std::size_t (*GetAliasMap)(int**, int**);
  void (*ReleaseAliasMap)(int*, int*);
};
// NOLINTEND(readability-identifier-naming)

// The interface's table, with calls that throw `Error` instead of returning a status.
class Api {
 public:
  explicit Api(const OrtApi* table) : table_(table) {}

  template <class Result, class... Args>
  Result raw(Slot slot, Args... args) const {
    auto functions = reinterpret_cast<void* const*>(table_);
    auto function = reinterpret_cast<Result (*)(Args...)>(functions[std::size_t(slot)]);
    return function(args...);
  }

  template <class... Args>
  void call(Slot slot, Args... args) const {
    if (auto* status = raw<OrtStatus*>(slot, args...)) fail(status);
  }

  // Returns true if the call succeeds.
  template <class... Args>
  bool tries(Slot slot, Args... args) const {
    auto* status = raw<OrtStatus*>(slot, args...);
    if (status) raw<void>(Slot::ReleaseStatus, status);
    return !status;
  }

  OrtStatus* status(const std::string& message) const {
    return raw<OrtStatus*>(Slot::CreateStatus, kFail, message.c_str());
  }

  std::string node_name(const OrtKernelInfo* info) const;
  std::int64_t integer(const OrtKernelInfo* info, const char* name) const;
  float real(const OrtKernelInfo* info, const char* name) const;
  std::string text(const OrtKernelInfo* info, const char* name) const;
  Shape integers(const OrtKernelInfo* info, const char* name) const;
  std::int64_t integer(OrtShapeInferContext* context, const char* name) const;
  Shape integers(OrtShapeInferContext* context, const char* name) const;

  // Element type (ONNX TensorProto number) and shape; in shape inference unknown dimensions are -1.
  std::pair<int, Shape> type_and_shape(const OrtTensorInfo* info) const;
  std::pair<int, Shape> type_and_shape(const OrtValue* value) const;

  void* data(const OrtValue* value) const;
  const OrtValue* input(OrtKernelContext* context, std::size_t index) const;
  void* output(OrtKernelContext* context, std::size_t index, const Shape& shape) const;

  std::size_t input_count(OrtKernelContext* context) const;
  std::size_t output_count(OrtKernelContext* context) const;

  // Calls `body`, which must not throw, for 0 to `count` - 1, on the threads of the session.
  template <class Body>
  void parallel(OrtKernelContext* context, std::size_t count, const Body& body) const {
    auto one = +[](void* held, std::size_t i) { (*static_cast<const Body*>(held))(i); };
    call(Slot::KernelContext_ParallelFor, static_cast<const OrtKernelContext*>(context), one, count,
         std::size_t{0}, const_cast<void*>(static_cast<const void*>(&body)));
  }

  // The stream of this node's device; null on the CPU.
  void* stream(OrtKernelContext* context) const;

  // A session's configuration entry; empty if there is none.
  std::string config_entry(const OrtSessionOptions* options, const char* key) const;

 private:
  [[noreturn]] void fail(OrtStatus* status) const;

  const OrtApi* table_;
};

// Runs `body`; an exception becomes a status, since exceptions must not cross the C interface.
template <class Body>
OrtStatus* guarded(const Api& api, Body body) {
  try {
    body();
    return nullptr;
  } catch (const std::exception& error) {
    return api.status(error.what());
  }
}

}  // namespace tensoropt
