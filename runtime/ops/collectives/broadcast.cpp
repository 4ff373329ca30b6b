#include "kinds.hpp"
#include "ort/attributes.hpp"
#include "run.hpp"

namespace tensoropt::kinds {

// All ranks receive x of rank `root`.
const Kind& broadcast() {
  static constexpr Kind kKind{
      .name = "Broadcast",
      .read =
          [](const Attributes& given, Collective& node) {
            node.source = given.integer("root");
            node.place_of(node.source);  // throws if it is no rank of the group
          },
      .text = [](const Collective& node) { return "root " + std::to_string(node.source); },
      .algorithms = [](double, double rounds) { return Algorithms{{rounds, rounds}}; },
      .run = [](const Run& run) { run.transport.broadcast(run.x, run.y, run.count, run.source()); },
  };
  return kKind;
}

}  // namespace tensoropt::kinds
