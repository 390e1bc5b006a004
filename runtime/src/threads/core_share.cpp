#include <strata/runtime/threads/core_share.h>

#include <algorithm>
#include <cstddef>

#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>

#include "threads/affinity.h"
#include "config/number_list.h"

namespace strata {
namespace {

using Cores = std::span<const UsableCore>;

int count(Cores cores) { return static_cast<int>(cores.size()); }
int count_cpus(Cores cores) {
  int cpus = 0;
  for (const UsableCore& core : cores) cpus += static_cast<int>(core.cpus.size());
  return cpus;
}

std::vector<Cores> by_node(Cores cores) {
  std::vector<Cores> nodes;
  for (std::size_t i = 0; i < cores.size();) {
    std::size_t end = i;
    while (end < cores.size() && cores[end].numa == cores[i].numa) ++end;
    nodes.push_back(cores.subspan(i, end - i));
    i = end;
  }
  return nodes;
}

// How many ranks each node gets if there are more ranks than nodes. Each rank in turn is assigned to the node
// where it gets the most cores (D'Hondt method), so no node has more ranks than cores while another has cores
// to spare.
std::vector<int> ranks_per_node(const std::vector<Cores>& nodes, int ranks) {
  std::vector<int> of_node(nodes.size(), 0);
  for (int r = 0; r < ranks; ++r) {
    std::size_t best = 0;
    for (std::size_t k = 1; k < nodes.size(); ++k)
      if (count(nodes[k]) * (of_node[best] + 1) > count(nodes[best]) * (of_node[k] + 1)) best = k;
    ++of_node[best];
  }
  return of_node;
}

// The cores of `rank`, which are contiguous in `cores`; cores of the same node are adjacent there.
Cores cores_of_rank(Cores cores, const LocalRank& rank) {
  const std::vector<Cores> nodes = by_node(cores);
  const auto n = static_cast<int>(nodes.size());
  if (rank.size > count(cores))  // several ranks share one core
    return cores.subspan(static_cast<std::size_t>(rank.rank) % cores.size(), 1);
  if (rank.size <= n) {
    std::size_t first = 0, size = 0;
    for (int k = 0; k < n; ++k) {
      const std::size_t of_node = nodes[static_cast<std::size_t>(k)].size();
      if (k < rank.rank * n / rank.size)
        first += of_node;
      else if (k < (rank.rank + 1) * n / rank.size)
        size += of_node;
    }
    return cores.subspan(first, size);
  }
  const std::vector<int> ranks = ranks_per_node(nodes, rank.size);
  std::size_t k = 0;
  int within = rank.rank;
  while (within >= ranks[k]) within -= ranks[k++];
  const int begin = count(nodes[k]) * within / ranks[k];
  const int end = count(nodes[k]) * (within + 1) / ranks[k];
  return nodes[k].subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
}

// Takes each service core from the node that has the most cores left, its first cores first, because
// interrupts usually arrive there.
void reserve_service_cores(std::vector<Cores>& nodes, int service) {
  for (int i = 0; i < service; ++i) {
    Cores& largest =
        *std::max_element(nodes.begin(), nodes.end(), [](Cores a, Cores b) { return a.size() < b.size(); });
    largest = largest.subspan(1);
  }
  std::erase_if(nodes, [](Cores cores) { return cores.empty(); });
}

// Divides `threads` in proportion to the cores of the nodes or, if there are more threads than cores, to
// their hardware threads.
std::vector<CoreShare::Node> bound_nodes(const std::vector<Cores>& nodes, int threads, int total_cores) {
  const bool by_core = threads <= total_cores;
  int total = 0;
  for (const Cores cores : nodes) total += by_core ? count(cores) : count_cpus(cores);
  std::vector<CoreShare::Node> result;
  int before = 0;
  for (const Cores cores : nodes) {
    const int after = before + (by_core ? count(cores) : count_cpus(cores));
    CoreShare::Node node{cores.front().numa, threads * after / total - threads * before / total, {}};
    for (const UsableCore& core : cores)
      node.cpus.insert(node.cpus.end(), core.cpus.begin(), core.cpus.end());
    std::sort(node.cpus.begin(), node.cpus.end());
    if (node.threads > 0) result.push_back(std::move(node));
    before = after;
  }
  return result;
}

std::string describe_cores(const Topology& machine, const LocalRank& rank, Cores mine) {
  const int all = count(machine.usable_cores);
  if (machine.is_bound())
    return str("the affinity mask leaves ", plural(count(mine), "core"), " (", machine.usable_threads, " of ",
               machine.hardware_threads, " hardware threads)");
  if (rank.size == 1) return str("all ", plural(all, "core"), " of this machine");
  std::string text = str("local rank ", rank.rank, " of ", rank.size, " (", rank.variable, ") has ",
                         count(mine), " of ", plural(all, "core"));
  if (rank.size > all) text += ", shared with other ranks: there are more ranks than cores";
  return text;
}

std::string describe_nodes(const std::vector<CoreShare::Node>& nodes) {
  std::vector<int> numbers;
  for (const CoreShare::Node& node : nodes) numbers.push_back(node.index);
  return str(" on NUMA node", nodes.size() == 1 ? " " : "s ", detail::number_list(numbers));
}

Status check(const Topology& machine, const LocalRank& rank, const CoreShareOptions& options) {
  if (machine.usable_cores.empty()) return Status::error(Code::invalid, "the topology has no cores");
  if (rank.rank < 0 || rank.rank >= rank.size)
    return Status::error(Code::invalid, str("local rank ", rank.rank, " of ", rank.size));
  if (options.threads.value_or(0) < 0)
    return Status::error(Code::invalid, str("cpu.threads is ", *options.threads,
                                            "; it must be 0 (one per hardware thread) or more"));
  if (options.service_cores.value_or(0) < 0)
    return Status::error(Code::invalid,
                         str("cpu.service_cores is ", *options.service_cores, "; it must be 0 or more"));
  return {};
}

// Why the threads of a share cannot be bound; empty if they can.
std::string unbound_reason(const Topology& machine, const LocalRank& rank, const CoreShareOptions& options,
                           Cores mine, int limit, int max_threads) {
  if (!machine.can_bind) return "not bound: this system does not let threads choose their cores";
  if (limit < count(mine))
    return str("not bound: the cgroup has a CPU quota of ", *options.cpu_quota, " CPUs",
               rank.size > 1 ? str(" for ", rank.size, " ranks") : std::string());
  if (options.threads.value_or(0) > max_threads)
    return str("not bound: only ", plural(max_threads, "hardware thread"), " available");
  return {};
}

}  // namespace

int CoreShare::threads() const noexcept {
  int total = 0;
  for (const Node& node : nodes) total += node.threads;
  return total;
}

Result<CoreShare> partition_cores(const Topology& machine, const LocalRank& rank,
                                  const CoreShareOptions& options) {
  STRATA_TRY(check(machine, rank, options));
  const Cores all = machine.usable_cores;
  const Cores mine = machine.is_bound() ? all : cores_of_rank(all, rank);
  const int service = options.service_cores.value_or(count(mine) >= 32 ? 2 : count(mine) >= 8 ? 1 : 0);
  if (service >= count(mine))
    return Status::error(Code::invalid,
                         str("cpu.service_cores is ", service, "; this process has ",
                             plural(count(mine), "core"), ", at least one of which must compute"));
  std::vector<Cores> nodes = by_node(mine);
  reserve_service_cores(nodes, service);
  int cores = 0, cpus = 0;
  for (const Cores node : nodes) cores += count(node), cpus += count_cpus(node);

  const int limit =
      options.cpu_quota ? std::max(1, static_cast<int>(*options.cpu_quota / rank.size)) : count(mine);
  const std::string unbound = unbound_reason(machine, rank, options, mine, limit, cpus);
  const int one_a_core = unbound.empty() ? cores : std::min(cores, limit);
  const int threads = !options.threads ? one_a_core : *options.threads == 0 ? cpus : *options.threads;
  CoreShare share;
  share.why = str(plural(threads, "thread"));
  if (unbound.empty()) {
    share.nodes = bound_nodes(nodes, threads, cores);
    share.service_cores = service;
    share.bound = share.nodes.size() > 1 || cpus < count_cpus(all);
    share.why += describe_nodes(share.nodes);
  } else {
    share.nodes = {{mine.front().numa, threads, {}}};
  }
  share.why += str("; ", describe_cores(machine, rank, mine), "; ");
  share.why += share.service_cores > 0 ? str(plural(service, "core"), " kept for launch and I/O threads")
                                       : std::string("none kept for launch and I/O threads");
  if (!unbound.empty()) share.why += "; " + unbound;
  return share;
}

Result<CoreShare> process_core_share(std::span<const std::string> environment, CoreShareOptions options) {
  STRATA_TRY_ASSIGN(const LocalRank rank, local_rank(environment));
  const Result<Topology> machine = read_topology();
  if (!options.cpu_quota) options.cpu_quota = read_host_facts().cgroup_cpus;
  if (machine.has_value()) return partition_cores(*machine, rank, options);
  CoreShare share;
  const auto usable = static_cast<int>(detail::affinity_mask().size());
  share.nodes = {{0, options.threads.value_or(0) > 0 ? *options.threads : std::max(1, usable), {}}};
  share.why = str(plural(share.threads(), "thread"), ", not bound: ", machine.status().message());
  return share;
}

}  // namespace strata
