#include "mpi/watch/resident_memory.h"

#include <fstream>
#include <string>

namespace strata::detail {

ResidentBytes resident_bytes() {
  std::ifstream status("/proc/self/status");
  ResidentBytes found;
  for (std::string name; status >> name;) {
    std::uint64_t kib = 0;
    if (name == "RssAnon:" || name == "RssFile:")
      status >> kib, found.own += kib * 1024;
    else if (name == "RssShmem:")
      status >> kib, found.shared += kib * 1024;
  }
  return found;
}

}  // namespace strata::detail
