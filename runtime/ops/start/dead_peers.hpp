// Handling of a rank of the same machine that is killed while MPICH copies from its memory.
#pragma once

namespace tensoropt {

// MPICH, and UCX below it, treat the end of the other process as a fatal error of their own,
// even if a communicator has an error handler: they print a stack and abort, before any rank can
// report which rank was killed. After this call, such a copy waits for the hub's report
// (control.hpp), which ends this process. Replaces process_vm_readv in the import tables of these
// libraries only.
void wait_for_the_verdict_on_dead_peers();

}  // namespace tensoropt
