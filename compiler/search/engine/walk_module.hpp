// The walk's part of the Python module.
#pragma once

#include <nanobind/nanobind.h>

namespace tensoropt::search {

void bind_walk(nanobind::module_& m);

}  // namespace tensoropt::search
