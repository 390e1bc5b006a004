#include "mpi/watch/shared_segments.h"

#include <unistd.h>

#include <fstream>
#include <string>

#include <strata/runtime/str.h>

namespace strata::detail {

void remove_shared_segments(std::span<const int> local_ranks) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const std::size_t path = line.find('/');
    if (path == std::string::npos || line.find("/vader_segment.", path) == std::string::npos) continue;
    for (const int rank : local_ranks)
      if (line.ends_with(str('.', rank))) (void)::unlink(line.c_str() + path);  // lines may be of one file
  }
}

}  // namespace strata::detail
