#include <algorithm>
#include <array>

#include <strata/ds_config/ds_config.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

constexpr std::size_t kValueWidth = 24;

/// A value that is not longer than a column; what is cut off is at the end of a character.
std::string shortened(const std::string& value) {
  if (value.size() <= kValueWidth) return value;
  std::size_t end = kValueWidth - 3;
  while (end > 0 && (static_cast<unsigned char>(value[end]) & 0xC0) == 0x80) --end;
  return value.substr(0, end) + "...";
}

using Line = std::array<std::string, 5>;

/// The setting of strata, or else the keys of strata that are about the same.
std::string strata_part(const DsFinding& one) {
  if (!one.strata_value.empty()) return str(one.strata_key, " = ", one.strata_value);
  return one.strata_key.empty() ? "-" : one.strata_key;
}

Line line_of(const DsFinding& one) {
  return {one.key, one.is_default ? str("(", one.value, ")") : shortened(one.value),
          std::string(to_string(one.verdict)), strata_part(one), one.reason};
}

}  // namespace

std::string ds_config_toml(std::span<const DsFinding> findings) {
  std::vector<const DsFinding*> set;
  for (const DsFinding& one : findings)
    if (!one.strata_value.empty() && std::none_of(set.begin(), set.end(), [&](const DsFinding* before) {
          return before->strata_key == one.strata_key;
        }))
      set.push_back(&one);
  const auto section = [](const DsFinding* one) {
    return one->strata_key.substr(0, one->strata_key.find('.'));
  };
  std::stable_sort(set.begin(), set.end(),
                   [&](const DsFinding* a, const DsFinding* b) { return section(a) < section(b); });
  std::string out, open;
  for (const DsFinding* const one : set) {
    if (section(one) != open) {
      open = section(one);
      out += str(out.empty() ? "" : "\n", "[", open, "]\n");
    }
    out += str(one->strata_key.substr(open.size() + 1), " = ", one->strata_value, "\n");
  }
  return out;
}

std::string ds_config_table(std::span<const DsFinding> findings) {
  std::vector<Line> lines = {{"key", "value", "verdict", "strata", "reason"}};
  for (const DsFinding& one : findings) lines.push_back(line_of(one));
  std::array<std::size_t, 5> widths = {};
  for (const Line& line : lines)
    for (std::size_t i = 0; i + 1 < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  std::string out;
  for (const Line& line : lines) {
    for (std::size_t i = 0; i + 1 < line.size(); ++i)
      out += line[i] + std::string(widths[i] - line[i].size() + 2, ' ');
    out += line.back() + "\n";
  }
  return out;
}

}  // namespace strata
