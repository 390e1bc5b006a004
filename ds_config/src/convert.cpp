#include <algorithm>
#include <map>
#include <utility>

#include <strata/runtime/config/suggest.h>
#include <strata/runtime/str.h>

#include "conversions.h"
#include "other_names.h"

namespace strata {
namespace {

using detail::Document;
using detail::Json;
using detail::Outcome;
using detail::Setting;
using detail::TableRow;

/// The section that is switched off and contains `key`, or nothing. "auto" may switch on what strata takes;
/// what it refuses is then for the trainer to decide.
std::string_view switched_off(const TableRow& row, std::string_view key, const Document& document) {
  for (const detail::Switch& of : detail::switches()) {
    if (!detail::is_below(key, of.section)) continue;
    const std::string name = str(of.section, ".enabled");
    if (key == name) continue;
    const bool is_auto = document.is_auto(name);
    const Json* const enabled = document.value(name);
    if (is_auto ? row.row.verdict == DsVerdict::refused : enabled == nullptr ? !of.is_on : *enabled == false)
      return of.section;
  }
  return {};
}

/// Whether a value of a key that is refused asks for nothing.
bool asks_for_nothing(const TableRow& row, const Json& value) {
  std::string_view rest = row.off;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('|'), rest.size());
    if (Json::parse(rest.substr(0, end)) == value) return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return false;
}

Outcome outcome_of(const TableRow& row, std::string_view key, const Json& value, const Document& document) {
  if (value.is_null() && key != "scheduler.type") return detail::meaningless("null: not set");
  if (detail::is_auto_text(value) && !row.auto_is_a_value) {
    return {DsVerdict::automatic,
            {},
            row.row.verdict == DsVerdict::taken
                ? "the Hugging Face Trainer fills it in; left to strata's default, or to what you set"
                : "the Hugging Face Trainer fills it in"};
  }
  if (const std::string_view section = switched_off(row, key, document); !section.empty())
    return detail::meaningless(str(section, ".enabled is not true"));
  if (row.convert != nullptr) return row.convert(row, value, document);
  if (row.row.verdict == DsVerdict::refused && asks_for_nothing(row, value))
    return detail::meaningless("as in strata");
  return {row.row.verdict, {}, {}};
}

class Converter {
 public:
  explicit Converter(const Document& document)
      : document_(document), defaults_(detail::defaults_for(document)) {}

  std::vector<DsFinding> run() {
    for (const auto& [name, value] : document_.root().items()) {
      walk(name, value);
      add_defaults(detail::table_name(name));
    }
    add_defaults({});
    return std::move(findings_);
  }

 private:
  void walk(const std::string& written, const Json& value) {
    const std::string key = detail::table_name(written);
    if (value.is_object() && !value.empty() && detail::is_section(key) && !is_pattern(key)) {
      for (const auto& [name, inner] : value.items()) walk(str(written, ".", name), inner);
      return;
    }
    const TableRow* const row = detail::find_row(key);
    const bool is_empty = value.is_null() || (value.is_object() && value.empty());
    if (is_empty && detail::is_section(key) && (row == nullptr || row->row.verdict == DsVerdict::taken))
      return;
    if (row != nullptr)
      add(written, key, value, *row, false);
    else if (detail::is_section(key))
      section(written, value);
    else
      unknown(written, value);
  }
  /// Whether all below `key` is covered by one row.
  static bool is_pattern(const std::string& key) {
    const TableRow* const row = detail::find_row(key);
    return row != nullptr && row->row.key.ends_with(".*");
  }

  void section(const std::string& written, const Json& value) {
    findings_.push_back({written, value.dump(), DsVerdict::refused, "", "", "it must be an object"});
  }
  void unknown(const std::string& written, const Json& value) {
    findings_.push_back({written, value.dump(), DsVerdict::unknown, "", "",
                         str("no key of DeepSpeed", did_you_mean(written, detail::known_keys()))});
  }

  void add(const std::string& written, const std::string& key, const Json& value, const TableRow& row,
           bool is_default) {
    if (!given_.emplace(key, written).second) {
      findings_.push_back(
          {written, value.dump(), DsVerdict::refused, "", "", str("it is also given as ", given_.at(key))});
      return;
    }
    Outcome outcome = outcome_of(row, key, value, document_);
    std::string reason = outcome.reason.empty() ? std::string(row.row.reason) : std::move(outcome.reason);
    if (is_default) reason = str("DeepSpeed's default; ", reason);
    DsFinding finding = {written, value.dump(),      outcome.verdict, std::string(row.row.strata_keys),
                         "",      std::move(reason), is_default};
    if (outcome.settings.empty()) findings_.push_back(finding);
    for (Setting& setting : outcome.settings) findings_.push_back(checked(finding, std::move(setting)));
  }
  /// Two keys may set the same key of strata, but not to different values.
  DsFinding checked(DsFinding finding, Setting setting) {
    const auto [at, is_new] = set_.emplace(setting.key, std::pair(setting.value, finding.key));
    finding.strata_key = std::move(setting.key);
    if (is_new || at->second.first == setting.value) {
      finding.strata_value = std::move(setting.value);
    } else {
      finding.verdict = DsVerdict::refused;
      finding.reason = str(at->second.second, " sets ", at->first, " to ", at->second.first);
    }
    return finding;
  }

  /// Adds the defaults of one section, or all that are left.
  void add_defaults(const std::string& section) {
    std::vector<detail::Default> left;
    for (detail::Default& one : defaults_)
      if (section.empty() || one.key.starts_with(section + "."))
        add(std::string(one.key), std::string(one.key), one.value.root, *detail::find_row(one.key), true);
      else
        left.push_back(std::move(one));
    defaults_ = std::move(left);
  }

  const Document& document_;
  std::vector<detail::Default> defaults_;
  std::vector<DsFinding> findings_;
  std::map<std::string, std::string> given_;                        ///< key, as it was written
  std::map<std::string, std::pair<std::string, std::string>> set_;  ///< strata key: value, set by
};

}  // namespace

Result<std::vector<DsFinding>> convert_ds_config(std::string_view json) {
  STRATA_TRY_ASSIGN(const Document document, Document::parse(json));
  return Converter(document).run();
}

Status ds_config_problems(std::span<const DsFinding> findings) {
  std::string all;
  for (const DsFinding& one : findings)
    if (one.verdict == DsVerdict::refused || one.verdict == DsVerdict::unknown)
      all += str(all.empty() ? "" : "\n", one.key, one.is_default ? " (not given)" : "", " = ", one.value,
                 ": ", one.reason);
  return all.empty() ? Status::ok() : Status::error(Code::unsupported, std::move(all));
}

}  // namespace strata
