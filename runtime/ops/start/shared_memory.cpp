#include "start/shared_memory.hpp"

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

namespace tensoropt {
namespace {

void forget_mapped() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const auto start = line.find("/dev/shm/mpich_");
    if (start != std::string::npos && !line.ends_with("(deleted)"))
      unlink(line.substr(start).c_str());
  }
}

// MPICH uses 32 bits of FNV-1a of the job's name, and appends the number of the machine.
std::string marks_of(const std::string& job) {
  std::uint32_t hash = 0x811c9dc5;
  for (const unsigned char byte : job) hash = (hash ^ byte) * 0x01000193;
  char text[16];
  std::snprintf(text, sizeof text, "_%x_", hash);
  return text;
}

}  // namespace

void forget_shared_memory(const std::string& job) {
  forget_mapped();
  if (job.empty()) return;
  const auto marks = marks_of(job);
  std::error_code ignored;
  for (const auto& file : std::filesystem::directory_iterator("/dev/shm", ignored))
    if (const auto name = file.path().filename().string();
        name.starts_with("mpich_") && name.find(marks) != std::string::npos)
      unlink(file.path().c_str());
}

}  // namespace tensoropt
