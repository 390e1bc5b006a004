// The only file that includes hwloc.
#include <strata/runtime/threads/topology.h>

#include <strata/runtime/str.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>

#include <hwloc.h>

#include "threads/affinity.h"

namespace strata {
namespace {

struct Destroy {
  void operator()(hwloc_topology_t topology) const noexcept { hwloc_topology_destroy(topology); }
};
using TopologyHandle = std::unique_ptr<hwloc_topology, Destroy>;

int count(hwloc_topology_t topology, hwloc_obj_type_t type) {
  return std::max(0, hwloc_get_nbobjs_by_type(topology, type));
}

std::uint64_t cache_bytes(hwloc_topology_t topology, hwloc_obj_type_t type, int max_count) {
  std::uint64_t total = 0;
  for (int i = 0; i < std::min(max_count, count(topology, type)); ++i)
    total += hwloc_get_obj_by_type(topology, type, static_cast<unsigned>(i))->attr->cache.size;
  return total;
}

// The machine as hwloc sees it, read at the first use: that takes milliseconds, and every pinned slab and
// every thread pool asks. It is only read afterwards, which hwloc allows from several threads. A failure is
// not kept.
Result<hwloc_topology_t> machine_topology() {
  static std::mutex mutex;
  static TopologyHandle machine;
  const std::scoped_lock lock(mutex);
  if (machine != nullptr) return machine.get();
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return Status::error(Code::unsupported, "hwloc cannot be initialized");
  TopologyHandle topology(raw);
  if (hwloc_topology_load(raw) != 0)
    return Status::error(Code::unsupported, "hwloc cannot read this machine");
  machine = std::move(topology);
  return machine.get();
}

struct FreeBitmap {
  void operator()(hwloc_bitmap_t bitmap) const noexcept { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<std::remove_pointer_t<hwloc_bitmap_t>, FreeBitmap>;

Status refused(const char* what) {
  return Status::error(Code::unsupported, str(what, ": ", std::strerror(errno)));
}

}  // namespace

Status bind_to_numa(void* data, std::size_t bytes, int node) {
  STRATA_TRY_ASSIGN(const hwloc_topology_t topology, machine_topology());
  const int n = count(topology, HWLOC_OBJ_NUMANODE);
  if (node == kAllNumaNodes) {
    if (n < 2) return {};
    const hwloc_const_nodeset_t all = hwloc_topology_get_allowed_nodeset(topology);
    const int rc =
        hwloc_set_area_membind(topology, data, bytes, all, HWLOC_MEMBIND_INTERLEAVE, HWLOC_MEMBIND_BYNODESET);
    return rc == 0 ? Status() : refused("interleaving memory over NUMA nodes");
  }
  const hwloc_obj_t object =
      node < 0 ? nullptr : hwloc_get_numanode_obj_by_os_index(topology, static_cast<unsigned>(node));
  if (object == nullptr)
    return Status::error(Code::invalid,
                         str("NUMA node ", node, " was requested, but the number of NUMA nodes is ", n));
  const int rc = hwloc_set_area_membind(topology, data, bytes, object->nodeset, HWLOC_MEMBIND_BIND,
                                        HWLOC_MEMBIND_BYNODESET);
  return rc == 0 ? Status() : refused("binding memory to a NUMA node");
}

Result<int> numa_binding(const void* data, std::size_t bytes) {
  STRATA_TRY_ASSIGN(const hwloc_topology_t topology, machine_topology());
  const Bitmap nodes(hwloc_bitmap_alloc());
  hwloc_membind_policy_t policy = HWLOC_MEMBIND_DEFAULT;
  if (nodes == nullptr ||
      hwloc_get_area_membind(topology, data, bytes, nodes.get(), &policy, HWLOC_MEMBIND_BYNODESET) != 0)
    return refused("reading the NUMA binding of memory");
  const bool one = policy == HWLOC_MEMBIND_BIND && hwloc_bitmap_weight(nodes.get()) == 1;
  return one ? hwloc_bitmap_first(nodes.get()) : kAllNumaNodes;
}

namespace {

// If hwloc reports no cores (some virtual machines), each hardware thread counts as one.
std::vector<UsableCore> usable_cores(hwloc_topology_t topology, hwloc_const_bitmap_t mask) {
  const hwloc_obj_type_t kind = count(topology, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  std::vector<UsableCore> cores;
  for (int i = 0; i < count(topology, kind); ++i) {
    const hwloc_obj_t object = hwloc_get_obj_by_type(topology, kind, static_cast<unsigned>(i));
    const hwloc_obj_t package = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_PACKAGE, object);
    UsableCore core{package != nullptr ? static_cast<int>(package->os_index) : 0,
                    std::max(0, hwloc_bitmap_first(object->nodeset)),
                    {}};
    for (int cpu = hwloc_bitmap_first(object->cpuset); cpu >= 0; cpu = hwloc_bitmap_next(object->cpuset, cpu))
      if (hwloc_bitmap_isset(mask, static_cast<unsigned>(cpu)) != 0) core.cpus.push_back(cpu);
    if (!core.cpus.empty()) cores.push_back(std::move(core));
  }
  std::stable_sort(cores.begin(), cores.end(),
                   [](const UsableCore& a, const UsableCore& b) { return a.numa < b.numa; });
  return cores;
}

// An empty mask means that the system does not report one; then the whole machine counts as usable.
Result<Topology> build_topology(hwloc_topology_t raw, std::span<const int> mask) {
  const Bitmap usable(hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(raw)));
  if (usable == nullptr) return Status::error(Code::out_of_memory, "hwloc has no memory for a set of CPUs");
  if (!mask.empty()) {
    const Bitmap bits(hwloc_bitmap_alloc());
    for (const int cpu : mask) hwloc_bitmap_set(bits.get(), static_cast<unsigned>(cpu));
    hwloc_bitmap_and(usable.get(), usable.get(), bits.get());
  }
  if (hwloc_bitmap_iszero(usable.get()) != 0)
    return Status::error(Code::invalid, str("an affinity mask of ", mask.size(),
                                            " hardware threads, none of which this machine has"));
  Topology result;
  result.packages = count(raw, HWLOC_OBJ_PACKAGE);
  result.cores = count(raw, HWLOC_OBJ_CORE);
  result.hardware_threads = count(raw, HWLOC_OBJ_PU);
  result.usable_threads = hwloc_bitmap_weight(usable.get());
  result.l2_bytes = cache_bytes(raw, HWLOC_OBJ_L2CACHE, 1);
  result.l3_bytes = cache_bytes(raw, HWLOC_OBJ_L3CACHE, 1 << 20);
  for (int i = 0; i < count(raw, HWLOC_OBJ_NUMANODE); ++i) {
    const hwloc_obj_t node = hwloc_get_obj_by_type(raw, HWLOC_OBJ_NUMANODE, static_cast<unsigned>(i));
    const int cores = hwloc_get_nbobjs_inside_cpuset_by_type(raw, node->cpuset, HWLOC_OBJ_CORE);
    result.numa.push_back(
        {static_cast<int>(node->os_index), std::max(0, cores), node->attr->numanode.local_memory});
  }
  result.usable_cores = usable_cores(raw, usable.get());
  return result;
}

}  // namespace

Result<Topology> read_topology() {
  STRATA_TRY_ASSIGN(const hwloc_topology_t topology, machine_topology());
  const std::vector<int> mask = detail::affinity_mask();
  STRATA_TRY_ASSIGN(Topology result, build_topology(topology, mask));
  result.can_bind = !mask.empty() && detail::bind_thread(::pthread_self(), mask).is_ok();
  return result;
}

Result<Topology> synthetic_topology(const std::string& synthetic, std::span<const int> mask) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return Status::error(Code::unsupported, "hwloc cannot be initialized");
  const TopologyHandle topology(raw);
  if (hwloc_topology_set_synthetic(raw, synthetic.c_str()) != 0 || hwloc_topology_load(raw) != 0)
    return Status::error(Code::invalid,
                         str("hwloc does not accept the synthetic topology \"", synthetic, "\""));
  return build_topology(raw, mask);
}

}  // namespace strata
