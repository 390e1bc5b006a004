#include <strata/train/offload_overhead.h>

#include <algorithm>

#include <fmt/format.h>

#include <strata/runtime/memory/host_memory.h>
#include <strata/profile/stalls.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

namespace strata {
namespace {

double total_ns(const StallTimes& times) {
  double total = static_cast<double>(times.computing_ns);
  for (const std::int64_t ns : times.stalled_ns) total += static_cast<double>(ns);
  return std::max(total, 1.0);
}

std::string line_of(const char* side, const StepSeconds& seconds) {
  const auto [fastest, slowest] = std::minmax_element(seconds.all.begin(), seconds.all.end());
  return fmt::format("  {:<16} {:>11.3f} {:>11.3f} {:>11.3f}   recompute {}\n", side, 1e3 * seconds.median(),
                     1e3 * *fastest, 1e3 * *slowest, seconds.recompute);
}

std::string json_of(const StepSeconds& seconds) {
  const auto [fastest, slowest] = std::minmax_element(seconds.all.begin(), seconds.all.end());
  return fmt::format(
      "{{\"median\": {:.9f}, \"fastest\": {:.9f}, \"slowest\": {:.9f}, \"recompute\": \"{}\"}}",
      seconds.median(), *fastest, *slowest, seconds.recompute);
}

std::string sentence(const OffloadOverhead& p) {
  return fmt::format(
      "offload efficiency {:.3f}: a step {} takes {:.1f} % of the time of one with offloading; {}\n",
      p.efficiency(), p.measured() ? "without offloading" : "of compute alone", 100 * p.efficiency(),
      bottleneck_text(p.times));
}

}  // namespace

double StepSeconds::median() const {
  std::vector<double> sorted = all;
  std::sort(sorted.begin(), sorted.end());
  const std::size_t n = sorted.size();
  return n % 2 == 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

double OffloadOverhead::on_device_s() const {
  if (measured()) return on_device.median();
  return offloaded.median() * static_cast<double>(times.computing_ns) / total_ns(times);
}

std::string reason_not_fitting(std::uint64_t bytes, int threads, const HostFacts& facts) {
  const std::uint64_t free = facts.usable_ram_bytes();
  if (free > 0 && bytes > free)
    return str("a run with everything on the device needs ", format_bytes(bytes),
               " of host memory in addition to the run as configured; ", format_bytes(free), " are free");
  const Status status = check_host_memory(bytes, threads, facts);
  return status.is_ok() ? std::string() : std::string(status.message());
}

std::string offload_overhead_text(const OffloadOverhead& p) {
  std::string text =
      fmt::format("  {:<16} {:>11} {:>11} {:>11}\n", "step", "median ms", "fastest", "slowest");
  text += line_of("with offloading", p.offloaded);
  if (p.measured())
    text += line_of("without", p.on_device);
  else
    text += fmt::format("  {:<16} {:>11.3f}   of the above; the step on the device was not measured: {}\n",
                        "compute alone", 1e3 * p.on_device_s(), p.not_measured_reason);
  text += "\n  share of the step with offloading\n";
  const auto share = [&](std::string_view what, std::int64_t ns) {
    text += fmt::format("  {:<16} {:>9.1f} %\n", what, 100 * static_cast<double>(ns) / total_ns(p.times));
  };
  share("compute", p.times.computing_ns);
  for (std::size_t i = 0; i < kStallCauses; ++i)
    share(to_string(static_cast<StallCause>(i)), p.times.stalled_ns[i]);
  return text + "\n" + sentence(p);
}

std::string offload_overhead_json(const OffloadOverhead& p) {
  std::string exposed;
  for (std::size_t i = 0; i < kStallCauses; ++i)
    exposed += fmt::format("{}\"{}\": {:.6f}", i == 0 ? "" : ", ", to_string(static_cast<StallCause>(i)),
                           static_cast<double>(p.times.stalled_ns[i]) / total_ns(p.times));
  std::string why;  // the message in one line, without characters that JSON would have to escape
  for (const char c : p.not_measured_reason)
    why += c == '"' || c == '\\' || static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  return fmt::format(
      "{{\n  \"offload_efficiency\": {:.6f},\n  \"measured\": {},\n  \"not_measured_reason\": \"{}\",\n  "
      "\"steps\": {},\n"
      "  \"step_offloaded_s\": {},\n  \"step_on_device_s\": {},\n  \"compute_alone_s\": {},\n"
      "  \"compute_share\": {:.6f},\n  \"exposed_share\": {{{}}}\n}}\n",
      p.efficiency(), p.measured(), why, p.offloaded.all.size(), json_of(p.offloaded),
      p.measured() ? json_of(p.on_device) : std::string("null"),
      p.measured() ? std::string("null") : fmt::format("{:.9f}", p.on_device_s()),
      static_cast<double>(p.times.computing_ns) / total_ns(p.times), exposed);
}

}  // namespace strata
