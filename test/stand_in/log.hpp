// What was called, one JSON object a line, in $TENSOROPT_NCCL_LOG/rank<world rank>.jsonl; and the
// settings a test makes through the environment.
#pragma once

#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

namespace stand_in {

// This process's rank in MPI_COMM_WORLD; before MPI is up, what the launcher's variables say.
int world_rank();

// The whole number that an environment variable holds, or `otherwise`.
long long setting(const char* name, long long otherwise);

// The address's alignment: the largest power of two that divides it, at most 4096; 0 of null.
std::size_t alignment(const void* address);

// A number that tells handles apart in the log.
std::size_t number(const void* handle);

// One line of the log, written whole when the object goes. Costs nothing where there is no log.
class Line {
 public:
  explicit Line(const char* call);
  ~Line();
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  template <class Number>
    requires std::is_integral_v<Number>
  Line& add(const char* key, Number value) {
    return put(key, std::to_string(value));
  }
  Line& add(const char* key, const std::string& value);
  Line& add(const char* key, const std::vector<int>& values);

 private:
  Line& put(const char* key, const std::string& json);

  std::string text_;
};

}  // namespace stand_in
