// MPI's return codes as exceptions.
#pragma once

#include <mpi.h>

#include <string>

#include "ort/ort_api.hpp"

namespace tensoropt {

inline void check_mpi(const char *function, int code) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error(std::string(function) + " failed: " + std::string(text, std::size_t(length)));
}

}  // namespace tensoropt
