// The secret shared by ranks that meet over TCP.
#pragma once

#include <string>

namespace tensoropt {

struct Secret {
  std::string text;    // 16 to 4096 characters
  std::string source;  // a variable's name, or a path
};

// Returns the secret in TENSOROPT_SECRET; else in the file tensoropt/secret in XDG_CONFIG_HOME or
// ~/.config, created with 32 random bytes if it does not exist. The file must belong to this user,
// and must not be accessible to others. Throws `Error`, which never contains the secret.
Secret shared_secret();

}  // namespace tensoropt
