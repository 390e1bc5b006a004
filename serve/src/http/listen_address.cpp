#include "http/listen_address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

/// Returns 0, or the error of the system.
int try_to_bind(const addrinfo& address) {
  const int socket = ::socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC, address.ai_protocol);
  if (socket < 0) return errno;
  const int yes = 1;
  (void)::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  const int failed = ::bind(socket, address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
  ::close(socket);
  return failed;
}

std::string advice_for(int error) {
  switch (error) {
    case EADDRINUSE:
      return "; choose another port with --port, or any that is free with --port 0";
    case EADDRNOTAVAIL:
      return "; --host takes an address of this machine: 127.0.0.1 for itself, 0.0.0.0 for all of them";
    case EACCES:
      return "; ports below 1024 need privileges, so choose another with --port";
    default:
      return {};
  }
}

}  // namespace

Status check_listen_address(const std::string& host, int port) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int unknown = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found);
  if (unknown != 0)
    return Status::error(Code::io_error, str("the address '", host, "' is unknown: ", ::gai_strerror(unknown),
                                             "; --host takes an address of this machine, such as 127.0.0.1"));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, ::freeaddrinfo);
  int error = EADDRNOTAVAIL;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    error = try_to_bind(*each);
    if (error == 0) return {};
  }
  return Status::error(Code::io_error,
                       str(host, ":", port, " cannot be bound: ", std::strerror(error), advice_for(error)));
}

}  // namespace strata::detail
