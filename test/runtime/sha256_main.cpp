// Reads lines "KEY MESSAGE" in hexadecimal, "-" for no bytes; writes the digest of the message and
// its HMAC with the key.
#include <iostream>
#include <string>

#include "start/sha256.hpp"

static std::string bytes_of(const std::string& digits) {
  std::string bytes;
  for (std::size_t at = 0; at + 1 < digits.size(); at += 2)
    bytes += char(std::stoi(digits.substr(at, 2), nullptr, 16));
  return bytes;
}

int main() {
  using namespace tensoropt;
  for (std::string key, message; std::cin >> key >> message;)
    std::cout << hex(sha256(bytes_of(message))) << ' '
              << hex(hmac_sha256(bytes_of(key), bytes_of(message))) << '\n';
}
