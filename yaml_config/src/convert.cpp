#include <algorithm>
#include <map>

#include <strata/runtime/config/suggest.h>
#include <strata/runtime/str.h>
#include <strata/yaml_config/yaml_config.h>

#include "table.h"

namespace strata {
namespace {

using detail::Json;
using detail::YamlOutcome;
using detail::YamlRow;

constexpr std::string_view kNotSet = "null: not set";

class Converter {
 public:
  Converter(const detail::TrainerTable& table, const Json& root) : table_(table), root_(root) {
    for (auto& [key, value] : root_.items()) value = as_number(value);
  }

  std::vector<DsFinding> run() {
    for (const auto& [key, value] : root_.items()) add(key, value, false);
    for (const detail::YamlDefault& one : table_.defaults)
      if (detail::at(root_, std::string(one.key).c_str()).is_null() &&
          (one.applies == nullptr || one.applies(root_)))
        add(std::string(one.key), Json::parse(one.value), true);
    return std::move(findings_);
  }

 private:
  void add(const std::string& key, const Json& value, bool is_default) {
    const auto row = std::find_if(table_.rows.begin(), table_.rows.end(),
                                  [&](const YamlRow& one) { return one.key == key; });
    if (row == table_.rows.end() && value.is_null()) {
      findings_.push_back({key, "null", DsVerdict::meaningless, "", "", std::string(kNotSet)});
      return;
    }
    if (row == table_.rows.end()) {
      std::vector<std::string_view> keys;
      for (const YamlRow& one : table_.rows) keys.push_back(one.key);
      findings_.push_back({key, value.dump(), DsVerdict::unknown, "", "",
                           str("no key of ", table_.name, " that is known here", did_you_mean(key, keys))});
      return;
    }
    YamlOutcome outcome = outcome_of(*row, value);
    std::string reason = outcome.reason.empty() ? std::string(row->reason) : std::move(outcome.reason);
    if (is_default) reason = str("the default of ", table_.name, reason.empty() ? "" : "; ", reason);
    DsFinding finding = {key, value.dump(),      outcome.verdict, std::string(row->strata_keys),
                         "",  std::move(reason), is_default};
    if (outcome.settings.empty()) findings_.push_back(finding);
    for (auto& [name, set] : outcome.settings) findings_.push_back(checked(finding, name, set.dump()));
  }

  YamlOutcome outcome_of(const YamlRow& row, const Json& value) const {
    if (value.is_null()) return detail::meaningless(std::string(kNotSet));
    if (const std::string_view why = table_.ignored(row.key, root_); !why.empty())
      return detail::meaningless(std::string(why));
    if (row.convert != nullptr) return row.convert(row, value, root_);
    if (row.verdict != DsVerdict::taken) return {row.verdict, {}, {}};
    return detail::taken(row.strata_keys.substr(0, row.strata_keys.find(' ')), value);
  }

  /// Trainers convert a number in quotes, and PyYAML reads 2e-5, which has no point, as text.
  static Json as_number(const Json& value) {
    if (!value.is_string()) return value;
    const auto& text = value.get_ref<const std::string&>();
    const Json number = Json::parse(text, nullptr, false);
    return number.is_number() ? number : value;
  }

  /// Two keys may set the same key of strata, but not to different values; a default gives way.
  DsFinding checked(DsFinding finding, const std::string& name, std::string value) {
    const auto [at, is_new] = set_.emplace(name, std::pair(value, finding.key));
    finding.strata_key = name;
    if (is_new || at->second.first == value) {
      finding.strata_value = std::move(value);
    } else {
      finding.verdict = finding.is_default ? DsVerdict::meaningless : DsVerdict::refused;
      finding.reason = str(at->second.second, " sets ", name, " to ", at->second.first);
    }
    return finding;
  }

  const detail::TrainerTable& table_;
  Json root_;
  std::vector<DsFinding> findings_;
  std::map<std::string, std::pair<std::string, std::string>> set_;  ///< strata key: value, set by
};

}  // namespace

Result<YamlConversion> convert_trainer_yaml(std::string_view yaml) {
  STRATA_TRY_ASSIGN(const Json root, detail::parse_yaml(yaml));
  const bool is_axolotl = root.contains("base_model"), is_factory = root.contains("model_name_or_path");
  if (is_axolotl == is_factory)
    return Status::error(Code::invalid,
                         str("it is neither a configuration of axolotl, which has base_model, nor one of "
                             "LLaMA-Factory, which has model_name_or_path",
                             is_axolotl ? ", but has both keys" : ""));
  const detail::TrainerTable& table = is_axolotl ? detail::axolotl_table() : detail::llama_factory_table();
  return YamlConversion{std::string(table.name), Converter(table, root).run()};
}

std::vector<std::string> yaml_config_strata_keys() {
  std::vector<std::string> keys;
  for (const auto* table : {&detail::axolotl_table(), &detail::llama_factory_table()})
    for (const YamlRow& row : table->rows)
      for (std::string_view rest = row.strata_keys; !rest.empty();) {
        const std::size_t end = std::min(rest.find(' '), rest.size());
        keys.emplace_back(rest.substr(0, end));
        rest.remove_prefix(std::min(end + 1, rest.size()));
      }
  return keys;
}

}  // namespace strata
