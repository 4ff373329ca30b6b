#include "start/random.hpp"

#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "error.hpp"

namespace tensoropt {

std::string random_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  ssize_t found = 0;  // up to 256 bytes are never cut short
  do found = getrandom(bytes.data(), count, 0);
  while (found < 0 && errno == EINTR);
  if (found != ssize_t(count)) throw Error(std::string("getrandom failed: ") + strerror(errno));
  return bytes;
}

}  // namespace tensoropt
