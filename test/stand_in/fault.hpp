// Calls that go wrong because a test wants them to.
#pragma once

namespace stand_in {

enum class Fault { None, Fail, Hang };

// What this process's next communication call (a collective, a send or a receive) should do.
// TENSOROPT_STAND_IN_FAULT is RANK:CALL:fail or RANK:CALL:hang, CALL counting from 1.
Fault next_fault();

}  // namespace stand_in
