// Collectives from the attributes of their nodes.
#pragma once

#include "kind.hpp"
#include "ort/ort_api.hpp"

namespace tensoropt {

// The attributes of a node, in a kernel or in shape inference. Throws if there is no such
// attribute.
class Attributes {
 public:
  Attributes(const Api& api, const OrtKernelInfo* info) : api_(api), info_(info) {}
  Attributes(const Api& api, OrtShapeInferContext* context) : api_(api), context_(context) {}

  std::int64_t integer(const char* name) const {
    return info_ ? api_.integer(info_, name) : api_.integer(context_, name);
  }
  Shape integers(const char* name) const {
    return info_ ? api_.integers(info_, name) : api_.integers(context_, name);
  }

  // In a kernel only.
  std::string text(const char* name) const { return api_.text(info_, name); }

 private:
  const Api& api_;
  const OrtKernelInfo* info_ = nullptr;
  OrtShapeInferContext* context_ = nullptr;
};

// Reads and checks the attributes of a kernel's node, without the dimensions of combined
// collectives. MPI must be initialised; nothing is sent. Throws if an attribute has invalid ranks.
Collective read_collective(const Attributes& given, const Form& form);

// Reads the attributes that result shapes depend on, unchecked.
Collective read_shapes(const Attributes& given, const Form& form);

}  // namespace tensoropt
