#include <strata/runtime/units.h>

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>

#include <strata/runtime/str.h>

namespace strata {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

struct Quantity {
  double number;
  std::string unit;  // lower case, spaces removed
};

Result<Quantity> split(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  Quantity q{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), q.number);
  if (error != std::errc{} || !std::isfinite(q.number) || q.number < 0)
    return Status::error(Code::invalid, str("'", text, "' does not begin with a number >= 0"));
  for (const char* c = end; c != text.data() + text.size(); ++c)
    if (*c != ' ') q.unit += static_cast<char>(std::tolower(static_cast<unsigned char>(*c)));
  return q;
}

template <std::size_t N>
Result<double> scale(std::string_view text, const std::array<Unit, N>& units) {
  STRATA_TRY_ASSIGN(const Quantity q, split(text));
  for (const Unit& unit : units)
    if (unit.name == q.unit) return q.number * unit.factor;
  std::string known;
  for (const Unit& unit : units)
    if (!unit.name.empty()) known += (known.empty() ? "" : ", ") + std::string(unit.name);
  return Status::error(Code::invalid,
                       str("'", text, "' has the unknown unit '", q.unit, "'; known: ", known));
}

}  // namespace

Result<std::uint64_t> parse_bytes(std::string_view text) {
  static constexpr std::array<Unit, 14> kUnits = {{{"", 1},
                                                   {"b", 1},
                                                   {"k", 1024},
                                                   {"kib", 1024},
                                                   {"kb", 1e3},
                                                   {"m", 1048576},
                                                   {"mib", 1048576},
                                                   {"mb", 1e6},
                                                   {"g", 1073741824},
                                                   {"gib", 1073741824},
                                                   {"gb", 1e9},
                                                   {"t", 1099511627776.0},
                                                   {"tib", 1099511627776.0},
                                                   {"tb", 1e12}}};
  STRATA_TRY_ASSIGN(const double bytes, scale(text, kUnits));
  if (bytes > 9.0e18) return Status::error(Code::invalid, str("'", text, "' is more than 2^63 bytes"));
  return static_cast<std::uint64_t>(std::llround(bytes));
}

std::string format_bytes(std::uint64_t bytes) {
  static constexpr std::array<std::string_view, 5> kNames = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kNames.size()) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kNames[unit]);
}

Result<double> parse_seconds(std::string_view text) {
  static constexpr std::array<Unit, 9> kUnits = {{{"", 1},
                                                  {"s", 1},
                                                  {"sec", 1},
                                                  {"ms", 1e-3},
                                                  {"us", 1e-6},
                                                  {"m", 60},
                                                  {"min", 60},
                                                  {"h", 3600},
                                                  {"d", 86400}}};
  return scale(text, kUnits);
}

}  // namespace strata
