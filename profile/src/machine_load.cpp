#include <strata/profile/machine_load.h>

#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include <strata/runtime/clock.h>

namespace strata {
namespace {

constexpr double kMaxOtherLoad = 0.1;
constexpr double kMaxStolenShare = 0.02;

double own_seconds() {
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

CpuTime read_cpu_time(const std::string& root) {
  CpuTime time;
  time.own_s = own_seconds();
  time.wall_s = static_cast<double>(SteadyClock().now_ns()) * 1e-9;
  std::ifstream stat(root + "/proc/stat");
  const double ticks_per_s = static_cast<double>(::sysconf(_SC_CLK_TCK));
  for (std::string line; std::getline(stat, line) && line.starts_with("cpu");) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (name != "cpu") {
      ++time.cpus;
      continue;
    }
    // user, nice, system, idle, iowait, irq, softirq, steal; guest time is included in the first two.
    std::array<double, 8> ticks{};
    for (double& n : ticks) words >> n;
    time.busy_s = (ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]) / ticks_per_s;
    time.stolen_s = ticks[7] / ticks_per_s;
  }
  return time;
}

std::string busy_note(const CpuTime& before, const CpuTime& after) {
  const double wall = after.wall_s - before.wall_s;
  if (after.cpus == 0 || !(wall > 0)) return {};
  const double others = (after.busy_s - before.busy_s - (after.own_s - before.own_s)) / wall;
  const double stolen = (after.stolen_s - before.stolen_s) / wall;
  std::string text;
  if (others > kMaxOtherLoad * after.cpus)
    text = fmt::format("other programs used {:.1f} of its {} CPUs", others, after.cpus);
  if (stolen > kMaxStolenShare * after.cpus)
    text += fmt::format("{}its hypervisor gave {:.1f} of {} CPUs to other machines",
                        text.empty() ? "" : ", and ", stolen, after.cpus);
  if (text.empty()) return {};
  return "the machine was busy: " + text +
         " during the measurement; it may be faster than measured, so measure again when it is idle";
}

}  // namespace strata
