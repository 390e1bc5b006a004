#include <strata/runtime/figure_text.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include <fmt/core.h>

namespace strata {
namespace {

struct Prefix {
  double size;
  std::string_view text;
};
constexpr std::array<Prefix, 5> kBytes = {
    {{0x1p40, " TiB"}, {0x1p30, " GiB"}, {0x1p20, " MiB"}, {0x1p10, " KiB"}, {1, " B"}}};
constexpr std::array<Prefix, 4> kSeconds = {{{1, " s"}, {1e-3, " ms"}, {1e-6, " us"}, {1e-9, " ns"}}};
constexpr std::array<Prefix, 4> kCounts = {{{1e12, " T"}, {1e9, " G"}, {1e6, " M"}, {1e3, " k"}}};

constexpr double kLeastCount = 1e4;  // a count below has no prefix

const Prefix& prefix_of(double value, std::span<const Prefix> prefixes) {
  // A figure that rounds up to the next prefix gets that prefix: 999.9 us is 1 ms.
  for (std::size_t i = 0; i + 1 < prefixes.size(); ++i)
    if (std::abs(value) >= 0.9995 * prefixes[i].size) return prefixes[i];
  return prefixes.back();
}

template <class... Args>
std::size_t write(std::span<char> into, fmt::format_string<Args...> format, Args&&... args) {
  return fmt::format_to_n(into.data(), into.size(), format, std::forward<Args>(args)...).size;
}

std::size_t write_figure(std::span<char> into, double value, std::string_view unit) {
  const bool is_count = unit != "B" && unit != "s";
  if (!std::isfinite(value)) return write(into, "-");
  if (value == 0 && unit == "s") return write(into, "0 s");
  if (is_count && std::abs(value) < kLeastCount) return write(into, "{:.4g}", value);
  const Prefix& prefix = prefix_of(value, unit == "B"   ? std::span<const Prefix>(kBytes)
                                          : unit == "s" ? std::span<const Prefix>(kSeconds)
                                                        : std::span<const Prefix>(kCounts));
  const double scaled = value / prefix.size;
  if (std::abs(scaled) >= 99.95) return write(into, "{:.0f}{}", scaled, prefix.text);
  return write(into, "{:.3g}{}", scaled, prefix.text);
}

}  // namespace

Figure::Figure(double value, std::string_view unit) noexcept {
  size_ = std::min(text_.size(), write_figure(text_, value, unit));
}

}  // namespace strata
