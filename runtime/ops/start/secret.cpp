#include "start/secret.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "error.hpp"
#include "start/launch_environment.hpp"
#include "start/random.hpp"
#include "start/sha256.hpp"
#include "start/sockets.hpp"

namespace tensoropt {
namespace {

constexpr const char* kVariable = "TENSOROPT_SECRET";
constexpr const char* kInstead = ", expected a secret that all ranks share in TENSOROPT_SECRET";
constexpr std::size_t kLeast = 16, kMost = 4096, kDrawn = 32;
constexpr mode_t kOthers = S_IRWXG | S_IRWXO, kPermissions = 07777;

std::string octal(mode_t mode) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "%03o", unsigned(mode & kPermissions));
  return text.data();
}

// Strips the trailing newline, which editors and shells add, and checks the length.
std::string checked(std::string text, const std::string& source) {
  text.resize(text.find_last_not_of(" \t\r\n") + 1);
  if (text.size() >= kLeast && text.size() <= kMost) return text;
  throw Error(source + ": expected " + std::to_string(kLeast) + " to " + std::to_string(kMost) +
              " characters, got: " + std::to_string(text.size()));
}

// The folder of a user's settings; a relative path is ignored, as the XDG standard requires.
std::string settings_folder() {
  if (const auto folder = variable("XDG_CONFIG_HOME"); folder && folder->starts_with('/'))
    return *folder;
  if (const auto home = variable("HOME")) return *home + "/.config";
  throw Error("neither XDG_CONFIG_HOME nor HOME is set" + std::string(kInstead));
}

void check_owner(const std::string& path, const struct stat& facts) {
  if (!S_ISREG(facts.st_mode)) throw Error(path + ": expected a file");
  if (facts.st_uid != geteuid())
    throw Error(path + ": expected a file of user " + std::to_string(geteuid()) +
                " with mode 600 (chown, chmod 600), got: one of user " +
                std::to_string(facts.st_uid));
  if (facts.st_mode & kOthers)
    throw Error(path + ": others may read or change it, expected mode 600 (chmod 600 " + path +
                "), got: " + octal(facts.st_mode));
}

[[noreturn]] void fail(const std::string& path, const char* what) {
  const std::string why = strerror(errno);
  throw Error(path + ": cannot be " + what + ": " + why + kInstead);
}

// The content of the file, none if it does not exist. Does not block on a named pipe.
std::optional<std::string> read_secret(const std::string& path) {
  const Socket file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file && errno == ENOENT) return std::nullopt;
  struct stat facts{};
  if (!file || fstat(file.fd(), &facts)) fail(path, "read");
  check_owner(path, facts);
  std::string text(2 * kMost, '\0');
  const auto count = read(file.fd(), text.data(), text.size());
  if (count < 0) fail(path, "read");
  text.resize(std::size_t(count));
  return checked(text, path);
}

void write_secret(const Socket& file, const std::string& path) {
  const auto text = hex(random_bytes(kDrawn)) + "\n";
  if (write(file.fd(), text.data(), text.size()) != ssize_t(text.size()) || fsync(file.fd()))
    fail(path, "written");
}

// Creates the file atomically, even if many ranks do so concurrently: each writes a file under a
// unique name, and the first to link it wins. Also works on network file systems.
void make_secret(const std::string& path) {
  auto draft = path + ".XXXXXX";
  const Socket file(mkostemp(draft.data(), O_CLOEXEC));  // with O_EXCL and mode 600
  if (!file) fail(path, "made");
  try {
    write_secret(file, path);
    if (link(draft.c_str(), path.c_str()) && errno != EEXIST) fail(path, "made");
  } catch (const Error&) {
    unlink(draft.c_str());
    throw;
  }
  unlink(draft.c_str());
}

}  // namespace

Secret shared_secret() {
  if (const auto text = variable(kVariable)) return {checked(*text, kVariable), kVariable};
  const auto settings = settings_folder(), folder = settings + "/tensoropt";
  const auto path = folder + "/secret";
  if (const auto text = read_secret(path)) return {*text, path};
  for (const auto& each : {settings, folder}) mkdir(each.c_str(), S_IRWXU);  // may exist
  make_secret(path);
  if (const auto text = read_secret(path)) return {*text, path};
  throw Error(path + ": was removed as soon as it was made" + kInstead);
}

}  // namespace tensoropt
