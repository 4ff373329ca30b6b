#include "kinds.hpp"
#include "run.hpp"

namespace tensoropt::kinds {

const Kind& recv() {
  static constexpr Kind kKind{
      .name = "Recv",
      .has_x = false,
      .run = [](const Run& run) { run.transport.recv(run.y, run.count, run.source()); },
  };
  return kKind;
}

}  // namespace tensoropt::kinds
