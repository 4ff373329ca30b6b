#include "ort/custom_op.hpp"

#include <algorithm>

namespace tensoropt {
namespace {

constexpr int kMaxVersion = 0x7fffffff;

int one(const CustomOp*) { return 1; }
int last_version(const CustomOp*) { return kMaxVersion; }
int required(const CustomOp*, std::size_t) { return kRequired; }
int default_memory(const CustomOp*, std::size_t) { return kDefaultMemory; }
const char* cpu_provider(const CustomOp*) { return nullptr; }
const char* cuda_provider(const CustomOp*) { return "CUDAExecutionProvider"; }

}  // namespace

const OrtApi* registered_api = nullptr;
const OrtApi* newer_api = nullptr;

CustomOp plain_op(Place place, std::size_t (*inputs)(const CustomOp*),
                  std::size_t (*outputs)(const CustomOp*)) {
  CustomOp op{};
  op.version = kApiVersion;
  op.GetExecutionProviderType = place == Place::Host ? cpu_provider : cuda_provider;
  op.GetInputTypeCount = inputs;
  op.GetOutputTypeCount = outputs;
  op.GetInputCharacteristic = op.GetOutputCharacteristic = required;
  op.GetInputMemoryType = default_memory;
  op.GetVariadicInputMinArity = op.GetVariadicInputHomogeneity = one;
  op.GetVariadicOutputMinArity = op.GetVariadicOutputHomogeneity = one;
  op.GetStartVersion = one;
  op.GetEndVersion = last_version;
  return op;
}

void keep_aliases(int*, int*) {}

void set_output(const Api& api, OrtShapeInferContext* context, std::size_t index, int type,
                const Shape& shape) {
  OrtTensorInfo* info = nullptr;
  api.call(Slot::CreateTensorTypeAndShapeInfo, &info);
  try {
    api.call(Slot::SetTensorElementType, info, type);
    api.call(Slot::SetDimensions, info, shape.data(), shape.size());
    api.call(Slot::ShapeInferContext_SetOutputTypeShape, context, index,
             static_cast<const OrtTensorInfo*>(info));
  } catch (...) {
    api.raw<void>(Slot::ReleaseTensorTypeAndShapeInfo, info);
    throw;
  }
  api.raw<void>(Slot::ReleaseTensorTypeAndShapeInfo, info);
}

std::pair<int, Shape> inferred_input(const Api& api, OrtShapeInferContext* context,
                                     std::size_t index) {
  OrtTensorInfo* info = nullptr;  // owned by the context
  api.call(Slot::ShapeInferContext_GetInputTypeShape, context, index, &info);
  return api.type_and_shape(info);
}

bool is_known(const Shape& shape) {
  return !shape.empty() && *std::min_element(shape.begin(), shape.end()) >= 0;
}

}  // namespace tensoropt
