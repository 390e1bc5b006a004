#include <strata/runtime/threads/topology.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>
#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

#include <strata/runtime/str.h>

#include "io/small_file.h"

namespace strata {
namespace {

constexpr std::size_t kProcLimitBytes = 1 << 20;

std::string read_or_empty(const std::string& path) {
  auto text = detail::read_small_file(path, kProcLimitBytes);
  return text ? std::move(*text) : std::string();
}

std::optional<std::uint64_t> leading_number(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return std::nullopt;
  return value;
}

/// The number after `label` at the beginning of a line: "Name:" in /proc/meminfo, "name " in memory.stat.
std::uint64_t labelled(std::string_view text, std::string_view label) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    if (line.starts_with(label)) return leading_number(line.substr(label.size())).value_or(0);
    at = end + 1;
  }
  return 0;
}

/// Value in kB.
std::uint64_t meminfo(std::string_view text, std::string_view name) { return labelled(text, str(name, ":")); }

struct CgroupFiles {
  const char* limit;
  const char* used;
  std::string_view cache[2];  ///< lines of memory.stat with the file cache, descendants included
};

/// Finds the smallest limit of a cgroup and its ancestors, and the minimum memory that any of them leaves.
/// Inside a container the path may not exist below the mount; then only the files of the mount itself count.
void apply_memory_limit(const std::string& mount, std::string path, CgroupFiles files, HostFacts& facts) {
  while (true) {
    const std::string folder = mount + (path == "/" ? "" : path);
    const auto limit = leading_number(read_or_empty(folder + "/" + files.limit));  // "max" is not a number
    constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 60;  // v1 reports 2^63 minus a page for no limit
    if (limit && *limit < kNoLimit) {
      const auto used = leading_number(read_or_empty(folder + "/" + files.used));
      const std::string stat = read_or_empty(folder + "/memory.stat");
      const std::uint64_t cache = labelled(stat, files.cache[0]) + labelled(stat, files.cache[1]);
      const std::uint64_t held = used.value_or(0) - std::min(used.value_or(0), cache);
      const std::uint64_t left = *limit - std::min(*limit, held);
      facts.cgroup_free_bytes = std::min(left, facts.cgroup_free_bytes.value_or(kNoLimit));
      if (*limit < facts.cgroup_limit_bytes.value_or(kNoLimit)) {
        facts.cgroup_limit_bytes = limit;
        facts.cgroup_used_bytes = used;
      }
    }
    if (path.empty() || path == "/") return;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

void apply_cpu_quota(std::string_view quota_text, std::string_view period_text, HostFacts& facts) {
  const auto quota = leading_number(quota_text), period = leading_number(period_text);
  if (quota && period && *period > 0)
    facts.cgroup_cpus = static_cast<double>(*quota) / static_cast<double>(*period);
}

constexpr CgroupFiles kUnified = {"memory.max", "memory.current", {"active_file ", "inactive_file "}};
constexpr CgroupFiles kLegacy = {
    "memory.limit_in_bytes", "memory.usage_in_bytes", {"total_active_file ", "total_inactive_file "}};

void read_cgroup(const std::string& root, HostFacts& facts) {
  const std::string cgroups = read_or_empty(root + "/proc/self/cgroup"), mount = root + "/sys/fs/cgroup";
  for (std::size_t at = 0; at < cgroups.size();) {  // lines "hierarchy:controllers:path"; v2 is "0::path"
    const std::size_t end = std::min(cgroups.find('\n', at), cgroups.size());
    const std::string line = cgroups.substr(at, end - at);
    at = end + 1;
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = str(",", line.substr(first + 1, second - first - 1), ",");
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") {
      apply_memory_limit(mount, path, kUnified, facts);
      const std::string cpu =
          read_or_empty(mount + (path == "/" ? "" : path) + "/cpu.max");  // "quota period"
      apply_cpu_quota(cpu, std::string_view(cpu).substr(std::min(cpu.find(' '), cpu.size())), facts);
    } else if (controllers.find(",memory,") != std::string::npos) {
      apply_memory_limit(mount + "/memory", path, kLegacy, facts);
    } else if (controllers.find(",cpu,") != std::string::npos) {
      const std::string folder = mount + "/cpu" + (path == "/" ? "" : path);
      apply_cpu_quota(read_or_empty(folder + "/cpu.cfs_quota_us"),
                      read_or_empty(folder + "/cpu.cfs_period_us"), facts);
    }
  }
}

HugePages read_huge_pages(const std::string& root, std::string_view memory) {
  HugePages pages;
  const std::string modes =
      read_or_empty(root + "/sys/kernel/mm/transparent_hugepage/enabled");  // "always [madvise] never"
  const std::size_t open = modes.find('['), close = modes.find(']');
  if (open != std::string::npos && close != std::string::npos && open < close)
    pages.transparent = modes.substr(open + 1, close - open - 1);
  const std::uint64_t size = meminfo(memory, "Hugepagesize") * 1024;
  pages.reserved_bytes = meminfo(memory, "HugePages_Total") * size;
  pages.free_bytes = meminfo(memory, "HugePages_Free") * size;
  return pages;
}

#if defined(__x86_64__) || defined(__i386__)
struct Registers {
  unsigned a = 0, b = 0, c = 0, d = 0;
};
Registers cpuid(unsigned leaf, unsigned subleaf) {
  Registers r;
  if (__get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d) == 0) return {};
  return r;
}
bool bit(unsigned word, int index) { return ((word >> index) & 1u) != 0; }

/// The register states that the operating system saves at a context switch. An instruction set whose state is
/// not saved faults.
std::uint64_t saved_states(const Registers& leaf1) {
  if (!bit(leaf1.c, 27)) return 0;  // OSXSAVE
  unsigned low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (std::uint64_t{high} << 32) | low;
}

std::string brand() {
  if (cpuid(0x80000000u, 0).a < 0x80000004u) return {};
  char text[49] = {};
  for (unsigned i = 0; i < 3; ++i) {
    const Registers r = cpuid(0x80000002u + i, 0);
    std::memcpy(text + 16 * i, &r, 16);
  }
  std::string name = text;
  while (!name.empty() && name.front() == ' ') name.erase(0, 1);
  while (!name.empty() && name.back() == ' ') name.pop_back();
  return name;
}
#endif

}  // namespace

CpuFeatures read_cpu_features() {
  CpuFeatures features;
#if defined(__x86_64__) || defined(__i386__)
  const Registers one = cpuid(1, 0), seven = cpuid(7, 0), seven_one = cpuid(7, 1);
  const std::uint64_t states = saved_states(one);
  const bool ymm = (states & 0x6) == 0x6, zmm = (states & 0xE6) == 0xE6,
             tiles = (states & 0x60000) == 0x60000;
  features.name = brand();
  features.sse42 = bit(one.c, 20);
  features.avx2 = ymm && bit(seven.b, 5);
  features.f16c = ymm && bit(one.c, 29);
  features.avx512f = zmm && bit(seven.b, 16);
  features.avx512dq = zmm && bit(seven.b, 17);
  features.avx512bw = zmm && bit(seven.b, 30);
  features.avx512vl = zmm && bit(seven.b, 31);
  features.avx512_bf16 = zmm && bit(seven_one.a, 5);
  features.amx_bf16 = tiles && bit(seven.d, 22) && bit(seven.d, 24);
#elif defined(__aarch64__)
  features.neon = true;
#endif
  return features;
}

const char* CpuFeatures::isa() const noexcept {
  if (avx512f && avx512bw && avx512dq && avx512vl) return "avx512";
  if (avx2 && f16c) return "avx2";
  if (sse42) return "sse4";
  return neon ? "neon" : "scalar";
}

std::uint64_t HostFacts::usable_ram_bytes() const noexcept {
  return std::min(available_ram_bytes, cgroup_free_bytes.value_or(UINT64_MAX));
}

HostFacts read_host_facts(const std::string& root) {
  HostFacts facts;
  const std::string memory = read_or_empty(root + "/proc/meminfo");
  facts.total_ram_bytes = meminfo(memory, "MemTotal") * 1024;
  facts.available_ram_bytes = meminfo(memory, "MemAvailable") * 1024;
  facts.huge_pages = read_huge_pages(root, memory);
  read_cgroup(root, facts);
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    facts.memlock_limit_bytes = limit.rlim_cur;
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    facts.address_space_limit_bytes = limit.rlim_cur;
  facts.address_space_used_bytes = leading_number(read_or_empty(root + "/proc/self/statm")).value_or(0) *
                                   static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::string status = read_or_empty(root + "/proc/self/status");
  facts.anonymous_rss_bytes = (meminfo(status, "RssAnon") + meminfo(status, "RssShmem")) * 1024;
  utsname name{};
  if (::uname(&name) == 0) facts.kernel = name.release;
  return facts;
}

}  // namespace strata
