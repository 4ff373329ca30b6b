#include "overlap/flights.hpp"

#include "error.hpp"
#include "overlap/transfers.hpp"

namespace tensoropt {

void Flights::check_none(const void* handle, const void* owner) {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, other] : flights_)
    if (key == handle || other->owner == owner)
      throw Error(
          "an earlier run ended before its transfer was waited for, expected tensoropt_settle() "
          "after a run that fails");
}

void Flights::add(const void* handle, std::unique_ptr<Flight> flight) {
  const std::lock_guard lock(mutex_);
  flights_.emplace(handle, std::move(flight));
}

std::unique_ptr<Flight> Flights::take(const void* handle,
                                      const std::function<void(const Flight&)>& check) {
  const std::lock_guard lock(mutex_);
  const auto found = flights_.find(handle);
  if (found == flights_.end()) throw Error("expected the handle of a transfer that is under way");
  check(*found->second);
  return std::move(flights_.extract(found).mapped());
}

bool Flights::any() {
  const std::lock_guard lock(mutex_);
  return !flights_.empty();
}

template <class Chosen>
void Flights::forget_if(const Chosen& chosen) {
  std::vector<std::unique_ptr<Flight>> ended;
  {
    const std::lock_guard lock(mutex_);
    for (auto each = flights_.begin(); each != flights_.end();) {
      if (chosen(*each->second)) {
        ended.push_back(std::move(each->second));
        each = flights_.erase(each);
      } else {
        ++each;
      }
    }
  }
  for (const auto& flight : ended) flight->end();
}

void Flights::forget(const void* owner) {
  forget_if([&](const Flight& flight) { return flight.owner == owner; });
}

void Flights::forget_all() {
  forget_if([](const Flight&) { return true; });
}

Flights& flights() {
  static auto& all = *new Flights;
  return all;
}

void settle_transfers() {
  flights().forget_all();
  transfers().settle();
}

}  // namespace tensoropt
