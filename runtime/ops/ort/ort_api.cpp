#include "ort/ort_api.hpp"

namespace tensoropt {
namespace {

// The text of a call that first returns its size, including the terminating zero.
template <class Call>
std::string sized_text(Call call) {
  std::size_t size = 0;
  call(nullptr, &size);
  std::string text(size, '\0');
  call(text.data(), &size);
  text.resize(size ? size - 1 : 0);
  return text;
}

}  // namespace

void Api::fail(OrtStatus* status) const {
  std::string message = raw<const char*>(Slot::GetErrorMessage, status);
  raw<void>(Slot::ReleaseStatus, status);
  throw Error(message);
}

std::string Api::node_name(const OrtKernelInfo* info) const {
  return sized_text(
      [&](char* text, std::size_t* size) { call(Slot::KernelInfo_GetNodeName, info, text, size); });
}

std::int64_t Api::integer(const OrtKernelInfo* info, const char* name) const {
  std::int64_t value = 0;
  call(Slot::KernelInfoGetAttribute_int64, info, name, &value);
  return value;
}

float Api::real(const OrtKernelInfo* info, const char* name) const {
  float value = 0;
  call(Slot::KernelInfoGetAttribute_float, info, name, &value);
  return value;
}

std::string Api::text(const OrtKernelInfo* info, const char* name) const {
  return sized_text([&](char* text, std::size_t* size) {
    call(Slot::KernelInfoGetAttribute_string, info, name, text, size);
  });
}

Shape Api::integers(const OrtKernelInfo* info, const char* name) const {
  std::size_t size = 0;
  const auto slot = Slot::KernelInfoGetAttributeArray_int64;
  call(slot, info, name, static_cast<std::int64_t*>(nullptr), &size);
  Shape values(size);
  call(slot, info, name, values.data(), &size);
  return values;
}

std::int64_t Api::integer(OrtShapeInferContext* context, const char* name) const {
  const OrtOpAttr* attribute = nullptr;
  call(Slot::ShapeInferContext_GetAttribute, context, name, &attribute);
  std::int64_t value = 0;
  std::size_t size = 0;
  call(Slot::ReadOpAttr, attribute, kAttrInt, static_cast<void*>(&value), sizeof value, &size);
  return value;
}

Shape Api::integers(OrtShapeInferContext* context, const char* name) const {
  const OrtOpAttr* attribute = nullptr;
  call(Slot::ShapeInferContext_GetAttribute, context, name, &attribute);
  std::size_t bytes = 0;
  // Without a buffer the call fails and returns the required size.
  void* no_room = nullptr;
  tries(Slot::ReadOpAttr, attribute, kAttrInts, no_room, std::size_t{0}, &bytes);
  Shape values(bytes / sizeof(std::int64_t));
  if (!values.empty())
    call(Slot::ReadOpAttr, attribute, kAttrInts, static_cast<void*>(values.data()), bytes, &bytes);
  return values;
}

std::pair<int, Shape> Api::type_and_shape(const OrtTensorInfo* info) const {
  int type = 0;
  std::size_t rank = 0;
  call(Slot::GetTensorElementType, info, &type);
  call(Slot::GetDimensionsCount, info, &rank);
  Shape shape(rank);
  call(Slot::GetDimensions, info, shape.data(), rank);
  return {type, shape};
}

std::pair<int, Shape> Api::type_and_shape(const OrtValue* value) const {
  OrtTensorInfo* info = nullptr;
  call(Slot::GetTensorTypeAndShape, value, &info);
  auto result = type_and_shape(info);
  raw<void>(Slot::ReleaseTensorTypeAndShapeInfo, info);
  return result;
}

void* Api::data(const OrtValue* value) const {
  void* data = nullptr;
  call(Slot::GetTensorMutableData, value, &data);
  return data;
}

const OrtValue* Api::input(OrtKernelContext* context, std::size_t index) const {
  const OrtValue* value = nullptr;
  call(Slot::KernelContext_GetInput, context, index, &value);
  return value;
}

void* Api::output(OrtKernelContext* context, std::size_t index, const Shape& shape) const {
  OrtValue* value = nullptr;
  call(Slot::KernelContext_GetOutput, context, index, shape.data(), shape.size(), &value);
  return value ? data(value) : nullptr;
}

std::size_t Api::input_count(OrtKernelContext* context) const {
  std::size_t count = 0;
  call(Slot::KernelContext_GetInputCount, static_cast<const OrtKernelContext*>(context), &count);
  return count;
}

std::size_t Api::output_count(OrtKernelContext* context) const {
  std::size_t count = 0;
  call(Slot::KernelContext_GetOutputCount, static_cast<const OrtKernelContext*>(context), &count);
  return count;
}

void* Api::stream(OrtKernelContext* context) const {
  void* stream = nullptr;
  call(Slot::KernelContext_GetGPUComputeStream, static_cast<const OrtKernelContext*>(context),
       &stream);
  return stream;
}

std::string Api::config_entry(const OrtSessionOptions* options, const char* key) const {
  int exists = 0;
  call(Slot::HasSessionConfigEntry, options, key, &exists);
  if (!exists) return {};
  return sized_text([&](char* text, std::size_t* size) {
    call(Slot::GetSessionConfigEntry, options, key, text, size);
  });
}

}  // namespace tensoropt
