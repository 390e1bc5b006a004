#include <strata/profile/stalls.h>

#include <algorithm>
#include <array>
#include <numeric>

#include <fmt/format.h>

namespace strata {
namespace {

double seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

const char* in_words(StallCause cause) {
  constexpr std::array<const char*, kStallCauses> words = {"copies to the device",
                                                           "copies from the device",
                                                           "the optimizer on the CPU",
                                                           "reads and writes of nvme",
                                                           "collectives",
                                                           "the next batch",
                                                           "the thread that launches work"};
  return words[static_cast<std::size_t>(cause)];
}

}  // namespace

std::size_t write_stalls_json(char* to, std::size_t n, const StallTimes& times) noexcept {
  char* const end = to + n;
  char* at =
      fmt::format_to_n(to, n, "\"compute_s\": {:.6f}, \"exposed_wait_s\": {{", seconds(times.computing_ns))
          .out;
  for (std::size_t i = 0; i < kStallCauses; ++i)
    at = fmt::format_to_n(at, static_cast<std::size_t>(end - at), "{}\"{}\": {:.6f}", i == 0 ? "" : ", ",
                          to_string(static_cast<StallCause>(i)), seconds(times.stalled_ns[i]))
             .out;
  at = fmt::format_to_n(at, static_cast<std::size_t>(end - at), "}}").out;
  return static_cast<std::size_t>(at - to);
}

std::string stalls_json(const StallTimes& times) {
  std::array<char, 512> text;
  return {text.data(), write_stalls_json(text.data(), text.size(), times)};
}

std::string bottleneck_text(const StallTimes& times) {
  const std::int64_t stalled =
      std::accumulate(times.stalled_ns.begin(), times.stalled_ns.end(), std::int64_t{0});
  const auto total = static_cast<double>(times.computing_ns + stalled);
  if (total <= 0) return "step time was not attributed";
  const auto worst = std::max_element(times.stalled_ns.begin(), times.stalled_ns.end());
  const auto cause = static_cast<StallCause>(worst - times.stalled_ns.begin());
  const auto percent = [&](std::int64_t ns) { return 100 * static_cast<double>(ns) / total; };
  return fmt::format("compute took {:.1f} % of step time; the largest wait was for {}, {:.1f} %",
                     percent(times.computing_ns), in_words(cause), percent(*worst));
}

}  // namespace strata
