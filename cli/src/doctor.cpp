#include "doctor.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

namespace strata::cli {
namespace {

Check check_cpu(const CpuFeatures& cpu) {
  Check check{.name = "cpu"};
  std::string extras;
  if (cpu.avx512_bf16) extras += ", avx512_bf16";
  if (cpu.amx_bf16) extras += ", amx_bf16";
  check.detail = str(cpu.isa(), extras, cpu.name.empty() ? "" : "; ", cpu.name);
  if (!cpu.neon && !(cpu.avx2 && cpu.f16c)) {
    check.health = Health::degraded;
    check.remedy =
        "use a CPU with AVX2 and F16C, or a virtual machine that exposes them (qemu: -cpu host), for faster "
        "steps";
  }
  return check;
}

Check check_cores(const Result<Topology>& topology, const HostFacts& host) {
  Check check{.name = "cores"};
  if (!topology.has_value()) {
    check.health = Health::degraded;
    check.detail = std::string(topology.status().message());
    check.remedy = "set cpu.threads";
    return check;
  }
  check.detail = str(topology->cores, " cores, ", topology->usable_threads, " of ",
                     topology->hardware_threads, " threads usable, ", topology->numa.size(), " NUMA node",
                     topology->numa.size() == 1 ? "" : "s", ", L3 ", format_bytes(topology->l3_bytes));
  if (host.cgroup_cpus && *host.cgroup_cpus < topology->usable_threads) {
    check.health = Health::degraded;
    check.detail += str("; the cgroup limits CPU time to ", *host.cgroup_cpus, " CPUs");
    check.remedy = str("cpu.threads=", std::max(1, static_cast<int>(*host.cgroup_cpus)));
  }
  return check;
}

Check check_share(const Result<CoreShare>& share) {
  if (share.has_value()) return {.name = "compute", .detail = share->why};
  return {"compute", Health::broken, std::string(share.status().message()),
          "start all processes of this machine with one launcher, or unset the variables of other launchers",
          share.status().code()};
}

Check check_ram(const HostFacts& host) {
  Check check{.name = "ram"};
  check.detail =
      str(format_bytes(host.available_ram_bytes), " of ", format_bytes(host.total_ram_bytes), " available");
  if (host.cgroup_limit_bytes)
    check.detail += str("; cgroup limit ", format_bytes(*host.cgroup_limit_bytes), ", ",
                        format_bytes(host.cgroup_used_bytes.value_or(0)), " used");
  if (host.usable_ram_bytes() < kGiB) {
    check.health = Health::degraded;
    check.remedy = "end other programs or raise the memory limit; the kernel kills a run that exceeds it";
  }
  return check;
}

Check check_memlock(const HostFacts& host) {
  Check check{.name = "memlock"};
  if (!host.memlock_limit_bytes) {
    check.detail = "unlimited";
    return check;
  }
  check.detail = str(format_bytes(*host.memlock_limit_bytes), " may be locked");
  if (*host.memlock_limit_bytes < 64 * kMiB) {
    check.health = Health::degraded;
    check.remedy =
        "ulimit -l unlimited   (permanently: 'USER - memlock unlimited' in /etc/security/limits.conf)";
  }
  return check;
}

Check check_huge_pages(const HugePages& pages) {
  Check check{.name = "huge pages"};
  check.detail = str("transparent: ", pages.transparent.empty() ? "absent" : pages.transparent);
  if (pages.reserved_bytes > 0)
    check.detail += str("; ", format_bytes(pages.free_bytes), " of ", format_bytes(pages.reserved_bytes),
                        " reserved free");
  if (pages.transparent != "always" && pages.transparent != "madvise") {
    check.health = Health::degraded;
    check.remedy = "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled";
  }
  return check;
}

Check check_uring(const Status& uring, const HostFacts& host) {
  Check check{.name = "io_uring", .detail = str("works; kernel ", host.kernel)};
  if (!uring.is_ok()) {
    check.health = Health::degraded;
    check.detail = str(uring.message(), "; kernel ", host.kernel, "; NVMe I/O uses threads instead");
    check.remedy =
        "sudo sysctl kernel.io_uring_disabled=0   (in a container: allow io_uring in its seccomp profile)";
  }
  return check;
}

Check check_nvme(const std::string& dir, const Result<bool>& direct) {
  Check check{.name = "nvme dir"};
  if (!direct.has_value()) {
    check.health = Health::broken;
    check.detail = std::string(direct.status().message());
    check.remedy = str("mkdir -p ", dir, "   (and check its free space and permissions)");
    check.code = Code::io_error;
  } else if (*direct) {
    check.detail = str(dir, " supports O_DIRECT");
  } else {
    check.health = Health::degraded;
    check.detail = str(dir, " does not support O_DIRECT; the page cache uses RAM beyond the budgets");
    check.remedy = "use a directory on ext4 or xfs";
  }
  return check;
}

// Most runs are one process, so nothing is degraded without these libraries.
Check check_collectives(const std::vector<std::string>& found) {
  return {.name = "collectives",
          .detail = fmt::format("{}; only runs whose ranks are processes need one of them",
                                found.empty() ? std::string("neither NCCL nor MPI")
                                              : fmt::format("{}", fmt::join(found, ", ")))};
}

Check check_profile(const Result<CachedProfile>& profile) {
  Check check{.name = "profile"};
  if (!profile.has_value()) {
    check.health = Health::broken;
    check.detail = std::string(profile.status().message());
    check.remedy = "strata bench   (plan and train refuse an unreadable profile)";
    check.code = profile.status().code();
  } else if (!profile->profile) {
    check.health = Health::unchecked;
    check.detail = profile->warning.empty() ? "this machine was not measured, so plans have no forecast"
                                            : profile->warning;
    check.remedy = "strata bench --nvme-dir DIR";
  } else if (!profile->warning.empty()) {
    check.health = Health::degraded;
    check.detail = profile->warning;
    check.remedy = "strata bench --nvme-dir DIR";
  } else {
    const bool knows_disk = profile->profile->read_bytes_per_s > 0;
    check.detail = str(profile->profile->source, knows_disk ? "" : "; NVMe was not measured");
    if (!knows_disk) check.remedy = "strata bench --nvme-dir DIR, for forecasts of runs with an NVMe tier";
  }
  return check;
}

Check check_environment(const Status& environment) {
  Check check{.name = "environment", .detail = "every STRATA_* variable is known"};
  if (!environment.is_ok()) {
    check.health = Health::broken;
    check.detail = std::string(environment.message());
    std::replace(check.detail.begin(), check.detail.end(), '\n', ';');
    check.remedy = "unset or correct the variable; every other verb refuses it";
    check.code = environment.code();
  }
  return check;
}

}  // namespace

std::string_view to_string(Health health) noexcept {
  switch (health) {
    case Health::ok:
      return "ok";
    case Health::degraded:
      return "degraded";
    case Health::broken:
      return "broken";
    case Health::unchecked:
      return "unchecked";
  }
  return "unknown";
}

std::vector<Check> diagnose(const DoctorFacts& facts) {
  const Health cuda = facts.cuda.usable ? Health::ok : Health::degraded;
  std::vector<Check> checks = {check_cpu(facts.cpu),
                               check_cores(facts.topology, facts.host),
                               check_share(facts.share),
                               check_ram(facts.host),
                               check_memlock(facts.host),
                               check_huge_pages(facts.host.huge_pages),
                               check_uring(facts.uring, facts.host)};
  for (const DoctorFacts::NvmeDir& dir : facts.nvme_dirs) checks.push_back(check_nvme(dir.path, dir.direct));
  if (facts.nvme_dirs.empty())
    checks.push_back({"nvme dir", Health::unchecked, "none given", "strata doctor --nvme-dir DIR", Code::ok});
  checks.push_back({"cuda", cuda, facts.cuda.detail, facts.cuda.remedy, Code::ok});
  checks.push_back(check_collectives(facts.collectives));
  checks.push_back(check_profile(facts.profile));
  checks.push_back(check_environment(facts.environment));
  return checks;
}

}  // namespace strata::cli
