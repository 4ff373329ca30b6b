#include "cudnn/plans.hpp"

#include <map>
#include <mutex>
#include <utility>

#include "cuda/shared_library.hpp"
#include "error.hpp"

namespace tensoropt {
namespace {

struct Library {
  Library() {
    const SharedLibrary library("the library of attention on GPUs", "TENSOROPT_CUDNN_ATTENTION",
                                {"libtensoropt_cudnn.so"},
                                "TENSOROPT_CUDNN=1 pip install 'tensoropt[cuda]'");
    library.find(plan, "tensoropt_cudnn_plan");
    library.find(run, "tensoropt_cudnn_run");
  }

  decltype(&::tensoropt_cudnn_plan) plan;
  decltype(&::tensoropt_cudnn_run) run;
};

const Library& library() {
  static const Library library;
  return library;
}

void check(const char* error) {
  if (error) throw Error(std::string("cuDNN: ") + error);
}

}  // namespace

void require_cudnn() { library(); }

const CudnnPlan& cudnn_plan(const cudnn::Form& form, int device) {
  static std::mutex mutex;
  static auto& plans = *new std::map<std::pair<int, cudnn::Form>, CudnnPlan>;
  const std::lock_guard lock(mutex);
  auto& entry = plans[{device, form}];
  if (!entry.plan) check(library().plan(&form, nullptr, &entry.plan, &entry.workspace_bytes));
  return entry;
}

void CudnnPlan::run(void* stream, void* const* tensors, void* workspace) const {
  check(library().run(plan, stream, tensors, workspace));
}

}  // namespace tensoropt
