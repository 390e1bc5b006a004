#include "watch/process_identity.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

std::string first_line(const char* file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

}  // namespace

// Numbers of processes mean something only within one boot of a machine and one namespace.
ProcessIdentity this_process(std::string_view host) {
  std::error_code ignored;
  const std::filesystem::path space = std::filesystem::read_symlink("/proc/self/ns/pid", ignored);
  const char* const local = std::getenv("OMPI_COMM_WORLD_LOCAL_RANK");  // NOLINT(concurrency-mt-unsafe)
  return {std::string(host), static_cast<int>(::getpid()), local == nullptr ? -1 : std::atoi(local),
          first_line("/proc/sys/kernel/random/boot_id") + ' ' + space.string()};
}

std::string to_text(const ProcessIdentity& identity) {
  return str(identity.host, '\n', identity.pid, '\n', identity.local_rank, '\n', identity.place);
}

ProcessIdentity identity_from(std::string_view text) {
  ProcessIdentity identity;
  const std::size_t first = text.find('\n'), second = text.find('\n', first + 1),
                    third = text.find('\n', second + 1);
  if (third == std::string_view::npos) return identity;
  identity.host = text.substr(0, first);
  (void)std::from_chars(text.data() + first + 1, text.data() + second, identity.pid);
  (void)std::from_chars(text.data() + second + 1, text.data() + third, identity.local_rank);
  identity.place = text.substr(third + 1);
  return identity;
}

long out_of_memory_kills() {
  std::ifstream in("/proc/vmstat");
  std::string name;
  for (long value = 0; in >> name >> value;)
    if (name == "oom_kill") return value;
  return 0;
}

}  // namespace strata::detail
