// The identity of a job, and proofs that two ranks share it.
#pragma once

#include <string>

namespace tensoropt {

// The version of the protocol between ranks and hub, part of every first line.
inline constexpr const char* kProtocol = "3";

struct Identity {
  std::string key{};     // shared secret; empty if only these ranks have the sockets
  std::string job{};     // "NAME=HASH,NAME=HASH": values equal on all ranks, or "-"
  std::string source{};  // source of the key, for errors
};

// The secret of this user's ranks (secret.hpp). The job is `job`, the port of the meeting point,
// and the launcher's name for this run (torchrun's run ID and restart count, or Slurm's job and
// step). Throws `Error`.
Identity identity_of(const std::string& job, int port);

// 16 unpredictable bytes, in hexadecimal.
std::string new_nonce();

// The opening of a connection: the caller's first line, which contains a nonce, and the nonce of
// the other side.
struct Talk {
  std::string hello{}, nonce{};
};

// A proof of having `key`: the HMAC of the sender's role ("rank", "hub"), the opening of the
// connection, and the words `said`. So it cannot be replayed on another connection, by the other
// side, or with other words.
std::string proof_of(const std::string& key, const std::string& who, const Talk& talk,
                     const std::string& said);

// Compares in constant time.
bool is_same_proof(const std::string& a, const std::string& b);

// The first NAME with different HASHes in two jobs, empty if there is none.
std::string difference(const std::string& job, const std::string& other);

}  // namespace tensoropt
