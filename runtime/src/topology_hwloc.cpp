// The only file that includes hwloc.
#include <strata/runtime/topology.h>

#include <strata/runtime/str.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <type_traits>

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

Result<TopologyHandle> load_topology() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return Status::error(Code::unsupported, "hwloc cannot start");
  TopologyHandle topology(raw);
  if (hwloc_topology_load(raw) != 0)
    return Status::error(Code::unsupported, "hwloc cannot read this machine");
  return topology;
}

struct FreeBitmap {
  void operator()(hwloc_bitmap_t bitmap) const noexcept { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<std::remove_pointer_t<hwloc_bitmap_t>, FreeBitmap>;

Status refused(const char* what) {
  return Status::error(Code::unsupported, str(what, ": ", std::strerror(errno)));
}

}  // namespace

// Slabs are few and large, so reading the machine anew for each costs nothing that shows.
Status bind_to_numa(void* data, std::size_t bytes, int node) {
  STRATA_TRY_ASSIGN(const TopologyHandle topology, load_topology());
  const int n = count(topology.get(), HWLOC_OBJ_NUMANODE);
  if (node == kAllNumaNodes) {
    if (n < 2) return {};
    const hwloc_const_nodeset_t all = hwloc_topology_get_allowed_nodeset(topology.get());
    const int rc = hwloc_set_area_membind(topology.get(), data, bytes, all, HWLOC_MEMBIND_INTERLEAVE,
                                          HWLOC_MEMBIND_BYNODESET);
    return rc == 0 ? Status() : refused("interleaving memory over NUMA nodes");
  }
  const hwloc_obj_t object =
      node < 0 ? nullptr : hwloc_get_numanode_obj_by_os_index(topology.get(), static_cast<unsigned>(node));
  if (object == nullptr)
    return Status::error(Code::invalid, str("NUMA node ", node, " was asked for; this machine has ", n));
  const int rc = hwloc_set_area_membind(topology.get(), data, bytes, object->nodeset, HWLOC_MEMBIND_BIND,
                                        HWLOC_MEMBIND_BYNODESET);
  return rc == 0 ? Status() : refused("binding memory to a NUMA node");
}

Result<int> numa_binding(const void* data, std::size_t bytes) {
  STRATA_TRY_ASSIGN(const TopologyHandle topology, load_topology());
  const Bitmap nodes(hwloc_bitmap_alloc());
  hwloc_membind_policy_t policy = HWLOC_MEMBIND_DEFAULT;
  if (nodes == nullptr ||
      hwloc_get_area_membind(topology.get(), data, bytes, nodes.get(), &policy, HWLOC_MEMBIND_BYNODESET) != 0)
    return refused("asking where memory is bound");
  const bool one = policy == HWLOC_MEMBIND_BIND && hwloc_bitmap_weight(nodes.get()) == 1;
  return one ? hwloc_bitmap_first(nodes.get()) : kAllNumaNodes;
}

Result<Topology> read_topology() {
  STRATA_TRY_ASSIGN(const TopologyHandle topology, load_topology());
  const hwloc_topology_t raw = topology.get();
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
