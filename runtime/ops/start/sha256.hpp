// SHA-256 (FIPS 180-4) and HMAC-SHA-256 (FIPS 198-1, RFC 2104), for the few hundred bytes of the
// proofs that ranks exchange at the start.
#pragma once

#include <string>
#include <string_view>

namespace tensoropt {

// The 32 bytes of the digest.
std::string sha256(std::string_view message);
std::string hmac_sha256(std::string_view key, std::string_view message);

// Bytes as lower-case hexadecimal digits.
std::string hex(std::string_view bytes);

}  // namespace tensoropt
