// How a configuration tree is written: as TOML, as JSON, and value by value.
#include <strata/runtime/config/config.h>

#include <algorithm>
#include <string>
#include <vector>

#include <strata/runtime/config/json.h>
#include <strata/runtime/str.h>
#include <strata/runtime/utf8.h>

#include "config/config_raw.h"

namespace strata {

std::string detail::one_line(std::string_view text) {
  constexpr std::size_t kMaxShown = 120;
  std::string out;
  for (const char c : text.substr(0, kMaxShown))
    out += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? '?' : c;
  // Text cut inside a character, or bytes that never were UTF-8, would make the comment and the file
  // unreadable.
  while (!is_utf8(out) && text.size() > kMaxShown && out.size() + 4 > kMaxShown) out.pop_back();
  if (!is_utf8(out))
    for (char& c : out) c = static_cast<unsigned char>(c) >= 0x80 ? '?' : c;
  return text.size() > kMaxShown ? out + "..." : out;
}

namespace {

using detail::one_line;

std::string shown_value(const ConfigEntry& entry) {
  return entry.automatic && !entry.resolved ? "\"auto\"" : detail::print_value(*entry.spec, entry.value);
}

// The entries by section, which a schema may list in several places: in a file each stands once.
std::vector<const ConfigEntry*> by_section(const std::vector<ConfigEntry>& entries) {
  std::vector<std::string_view> sections;
  for (const ConfigEntry& entry : entries)
    if (std::find(sections.begin(), sections.end(), entry.spec->section) == sections.end())
      sections.push_back(entry.spec->section);
  std::vector<const ConfigEntry*> ordered;
  for (const std::string_view section : sections)
    for (const ConfigEntry& entry : entries)
      if (entry.spec->section == section) ordered.push_back(&entry);
  return ordered;
}

}  // namespace

std::string ConfigTree::to_toml(bool with_origins) const {
  std::string out;
  std::string_view section;
  for (const ConfigEntry* const each : by_section(entries_)) {
    const ConfigEntry& entry = *each;
    if (entry.spec->section != section) {
      section = entry.spec->section;
      out += str(out.empty() ? "" : "\n", "[", section, "]\n");
    }
    std::string line = str(entry.spec->name, " = ", shown_value(entry));
    if (with_origins) {
      line.append(line.size() < 32 ? 32 - line.size() : 1, ' ');
      line += str("# ", one_line(entry.origin));
      if (entry.automatic)
        line += entry.resolved ? str("; auto: ", one_line(entry.why)) : "; auto: decided when a run starts";
    }
    out += line + "\n";
  }
  return out;
}

std::string ConfigTree::shown(std::string_view key) const { return shown_value(entry(key)); }

std::string ConfigTree::to_json(bool with_origins) const {
  std::string out = "{";
  std::string_view section;
  for (const ConfigEntry* const each : by_section(entries_)) {
    const ConfigEntry& entry = *each;
    const bool first = entry.spec->section != section;
    if (first) {
      out += str(section.empty() ? "" : "\n  },", "\n  ", json_string(entry.spec->section), ": {");
      section = entry.spec->section;
    }
    out += str(first ? "" : ",", "\n    ", json_string(entry.spec->name), ": ");
    if (!with_origins) {
      out += shown_value(entry);
      continue;
    }
    out += str("{\"value\": ", shown_value(entry), ", \"origin\": ", json_string(entry.origin),
               ", \"auto\": ", entry.automatic ? "true" : "false");
    if (entry.resolved) out += str(", \"why\": ", json_string(entry.why));
    out += "}";
  }
  return out + (section.empty() ? "}\n" : "\n  }\n}\n");
}

}  // namespace strata
