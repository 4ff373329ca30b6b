// What MPICH does when a rank of the same machine is killed while it copies from that one's memory.
#pragma once

namespace tensoropt {

// MPICH, and UCX below it, take the end of the other process for a fatal error of their own,
// whatever error handler a communicator has: they print a stack and abort, before anybody can say
// which rank was killed. From now on such a copy waits for the hub to say so (control.hpp), which
// ends this process. Replaces process_vm_readv where those libraries import it; does nothing to
// others.
void wait_for_the_verdict_on_dead_peers();

}  // namespace tensoropt
