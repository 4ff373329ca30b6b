#include "mpi/mpi_call.hpp"

#include <string>

#include "error.hpp"
#include "start/control.hpp"

namespace tensoropt {
namespace {

// The last line of MPI's error stack, which has the cause.
std::string message_of(int code) {
  char bytes[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, bytes, &length);
  std::string text(bytes, std::size_t(length));
  while (text.ends_with('\n')) text.pop_back();
  const auto line = text.rfind('\n');
  if (line == std::string::npos) return text;
  text.erase(0, line + 1);  // "function(line)...: message"
  const auto colon = text.find(": ");
  return colon == std::string::npos ? text : text.substr(colon + 2);
}

}  // namespace

void check_mpi(const char* function, int code) {
  if (code == MPI_SUCCESS) return;
  const auto what = std::string(function) + " failed";
  say_fail(what);  // first: MPI_Error_string complains about codes that came from another rank
  throw Error(what + ": " + message_of(code));
}

}  // namespace tensoropt
