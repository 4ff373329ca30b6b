#include "kinds.hpp"
#include "run.hpp"

namespace tensoropt::kinds {

const Kind& send() {
  static constexpr Kind kKind{
      .name = "Send",
      .has_y = false,
      .run = [](const Run& run) { run.transport.send(run.x, run.count, run.target()); },
  };
  return kKind;
}

}  // namespace tensoropt::kinds
