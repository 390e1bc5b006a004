// The only file that includes hwloc.
#include <strata/runtime/topology.h>

#include <algorithm>
#include <memory>

#include <hwloc.h>
#include <sched.h>

namespace strata {
namespace {

struct Destroy {
  void operator()(hwloc_topology_t topology) const noexcept { hwloc_topology_destroy(topology); }
};
using TopologyHandle = std::unique_ptr<hwloc_topology, Destroy>;

int count(hwloc_topology_t topology, hwloc_obj_type_t type) {
  return std::max(0, hwloc_get_nbobjs_by_type(topology, type));
}

std::uint64_t cache_bytes(hwloc_topology_t topology, hwloc_obj_type_t type, int most) {
  std::uint64_t total = 0;
  for (int i = 0; i < std::min(most, count(topology, type)); ++i)
    total += hwloc_get_obj_by_type(topology, type, static_cast<unsigned>(i))->attr->cache.size;
  return total;
}

int affinity_threads(int otherwise) {
  cpu_set_t set;
  CPU_ZERO(&set);  // machines past 1024 threads fail here with EINVAL and count as all usable
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set))
                                                       : std::max(1, otherwise);
}

}  // namespace

Result<Topology> read_topology() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return Status::error(Code::unsupported, "hwloc cannot start");
  const TopologyHandle topology(raw);
  if (hwloc_topology_load(raw) != 0)
    return Status::error(Code::unsupported, "hwloc cannot read this machine");
  Topology result;
  result.packages = count(raw, HWLOC_OBJ_PACKAGE);
  result.cores = count(raw, HWLOC_OBJ_CORE);
  result.hardware_threads = count(raw, HWLOC_OBJ_PU);
  result.usable_threads = affinity_threads(result.hardware_threads);
  result.l2_bytes = cache_bytes(raw, HWLOC_OBJ_L2CACHE, 1);
  result.l3_bytes = cache_bytes(raw, HWLOC_OBJ_L3CACHE, 1 << 20);
  for (int i = 0; i < count(raw, HWLOC_OBJ_NUMANODE); ++i) {
    const hwloc_obj_t node = hwloc_get_obj_by_type(raw, HWLOC_OBJ_NUMANODE, static_cast<unsigned>(i));
    const int cores = hwloc_get_nbobjs_inside_cpuset_by_type(raw, node->cpuset, HWLOC_OBJ_CORE);
    result.numa.push_back(
        {static_cast<int>(node->os_index), std::max(0, cores), node->attr->numanode.local_memory});
  }
  return result;
}

}  // namespace strata
