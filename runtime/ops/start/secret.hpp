// The secret that all ranks share which meet over TCP.
#pragma once

#include <string>

namespace tensoropt {

struct Secret {
  std::string text;    // 16 to 4096 characters
  std::string source;  // where it is from: a variable's name, or a path
};

// That of TENSOROPT_SECRET; else of the file tensoropt/secret in XDG_CONFIG_HOME or ~/.config, made
// with 32 random bytes where there is none. The file must be this user's, and no other's to read or
// change. Throws `Error`, which never holds the text.
Secret shared_secret();

}  // namespace tensoropt
