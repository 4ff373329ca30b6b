#include "start/start_over_mpi.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <mpi.h>
#include <netinet/in.h>

#include <memory>
#include <sstream>
#include <string>

#include "error.hpp"
#include "mpi/mpi_call.hpp"
#include "start/control.hpp"
#include "start/hub.hpp"

namespace tensoropt {
namespace {

constexpr double kTimeout = 60;  // seconds; all ranks are up already
constexpr double kOneTry = 5;

std::string text_of(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address && address->sa_family == AF_INET)
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
  if (address && address->sa_family == AF_INET6) {
    const auto& ip = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    if (!IN6_IS_ADDR_LINKLOCAL(&ip)) inet_ntop(AF_INET6, &ip, text, sizeof text);
  }
  return text;
}

// All addresses of this machine, separated by spaces: loopback addresses, or all others.
std::string own_addresses(bool loopback) {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first)) return "127.0.0.1";
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> held(first, freeifaddrs);
  std::string all;
  for (auto* each = first; each; each = each->ifa_next) {
    const auto text = text_of(each->ifa_addr);
    const bool is_loopback = text.starts_with("127.") || text == "::1";
    if (!text.empty() && is_loopback == loopback) all += text + " ";
  }
  return all;
}

// Returns rank 0's text on every rank.
std::string broadcast(std::string text) {
  int size = int(text.size());
  check_mpi("MPI_Bcast", MPI_Bcast(&size, 1, MPI_INT, 0, MPI_COMM_WORLD));
  text.resize(std::size_t(size));
  check_mpi("MPI_Bcast", MPI_Bcast(text.data(), size, MPI_CHAR, 0, MPI_COMM_WORLD));
  return text;
}

bool shares_machine_with_0() {
  MPI_Comm here = MPI_COMM_NULL;
  check_mpi("MPI_Comm_split_type",
            MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here));
  int rank = 0, first = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  check_mpi("MPI_Allreduce", MPI_Allreduce(&rank, &first, 1, MPI_INT, MPI_MIN, here));
  MPI_Comm_free(&here);
  return first == 0;
}

Socket connect_to_any(const std::string& addresses, int port) {
  std::istringstream words(addresses);
  std::string address, why = "has no address";
  while (words >> address) try {
      return connect_to(address, port, after(kOneTry));
    } catch (const Error& error) {
      why = address + ": " + error.what();
    }
  throw Error("rank 0, asked for a connection, " + why);
}

// Starts rank 0's hub; returns its port.
int host(Socket listener, int size, Socket control, const Identity& identity) {
  const int port = port_of(listener);
  auto* hub = new Hub(std::move(listener), {size, false, kTimeout, identity, {}});  // never freed
  hub->adopt(std::move(control));
  run_aside(hub);
  return port;
}

}  // namespace

void watch_over_mpi() {
  if (is_watched()) return;
  int rank = 0, size = 0, port = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const Identity identity{
      .key = broadcast(rank == 0 ? new_nonce() : ""), .job = "-", .source = "MPI"};
  auto [mine, its] = socket_pair();
  if (rank == 0) port = host(listen_on("", 0), size, std::move(its), identity);
  check_mpi("MPI_Bcast", MPI_Bcast(&port, 1, MPI_INT, 0, MPI_COMM_WORLD));
  const auto home = broadcast(own_addresses(true)), away = broadcast(own_addresses(false));
  const auto addresses = shares_machine_with_0() ? home + away : away;
  const auto connect = [&, own = &mine] {
    return rank == 0 ? std::move(*own) : connect_to_any(addresses, port);
  };
  watch(join({connect, addresses + "port " + std::to_string(port), rank, size, false, kTimeout,
              identity}),
        rank, size);
}

}  // namespace tensoropt
