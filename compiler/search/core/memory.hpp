// How much memory a search may use.
#pragma once

#include <unistd.h>

namespace topt::search {

// Half of the machine's memory, in bytes.
inline double memory_budget() {
    static const double budget = 0.5 * double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGE_SIZE));
    return budget;
}

}  // namespace topt::search
