// In place of topology_hwloc.cpp, whose library is not there for this machine.
#include <strata/runtime/threads/topology.h>

namespace strata {

Status bind_to_numa(void*, std::size_t, int) {
  return Status::error(Code::unsupported, "this build has no hwloc: pages lie where they are touched first");
}

}  // namespace strata
