#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <strata/ds_config/ds_config.h>

#include "yaml_document.h"

namespace strata::detail {

/// The outcome of a value. An empty reason stands for that of the row.
struct YamlOutcome {
  DsVerdict verdict = DsVerdict::taken;
  std::vector<std::pair<std::string, Json>> settings = {};  ///< keys of strata and their values
  std::string reason = {};
};

struct YamlRow;
/// `root`: the whole file, whose other keys may decide.
using YamlConvert = YamlOutcome (*)(const YamlRow& row, const Json& value, const Json& root);

/// The verdict on a key.
struct YamlRow {
  std::string_view key;
  DsVerdict verdict = DsVerdict::meaningless;
  std::string_view strata_keys;  ///< as in DsRow
  std::string_view reason;
  YamlConvert convert =
      nullptr;  ///< nullptr: of keys that are taken, the value is that of the first of strata's keys
};

/// A key that counts although the file lacks it, as the value of another key of strata.
struct YamlDefault {
  std::string_view key, value;  ///< a key of the trainer, and its value as JSON
  bool (*applies)(const Json& root) = nullptr;
};

struct TrainerTable {
  std::string_view name;
  std::span<const YamlRow> rows;
  std::span<const YamlDefault> defaults;
  /// Why the trainer does not look at a key beside the others, such as a rank without an adapter; else empty.
  std::string_view (*ignored)(std::string_view key, const Json& root);
};
const TrainerTable& axolotl_table() noexcept;
const TrainerTable& llama_factory_table() noexcept;

// --- What conversions are made of ---

inline YamlOutcome taken(std::string_view key, Json value, std::string reason = {}) {
  return {DsVerdict::taken, {{std::string(key), std::move(value)}}, std::move(reason)};
}
inline YamlOutcome meaningless(std::string reason) { return {DsVerdict::meaningless, {}, std::move(reason)}; }
inline YamlOutcome refused(std::string reason) { return {DsVerdict::refused, {}, std::move(reason)}; }
inline bool is_off(const Json& value) {
  return value.is_null() || (value.is_boolean() && !value.get<bool>()) ||
         (value.is_number() && value.get<double>() == 0) ||
         (value.is_string() && value.get<std::string>().empty()) || (value.is_structured() && value.empty());
}
/// A list of texts: of a list, or of a text with commas.
Json as_list(const Json& value);
/// The value at a key; null if there is none.
const Json& at(const Json& root, const char* key);

// Conversions that rows of both tables name.
YamlOutcome schedule(const YamlRow& row, const Json& value, const Json& root);
YamlOutcome optimizer(const YamlRow& row, const Json& value, const Json& root);
/// Whether max_steps is given, which takes precedence over epochs.
bool has_steps(const Json& root);
YamlOutcome epochs(const YamlRow& row, const Json& value, const Json& root);
YamlOutcome steps(const YamlRow& row, const Json& value, const Json& root);
/// A number below 1 is a share of the steps, as in transformers 5.
YamlOutcome warmup_steps(const YamlRow& row, const Json& value, const Json& root);
/// A number of steps; shares of them are refused.
YamlOutcome every(const YamlRow& row, const Json& value, const Json& root);
YamlOutcome warmup_ratio(const YamlRow& row, const Json& value, const Json& root);
/// A list of names of modules, for the row's key.
YamlOutcome modules(const YamlRow& row, const Json& value, const Json& root);
YamlOutcome targets(const YamlRow& row, const Json& value, const Json& root);
YamlOutcome seq(const YamlRow& row, const Json& value, const Json& root);
/// Refused unless the value is off; then meaningless.
YamlOutcome unless_off(const YamlRow& row, const Json& value, const Json& root);
/// bf16 and fp16, both of which may be "auto".
YamlOutcome dtype(const YamlRow& row, const Json& value, const Json& root);

}  // namespace strata::detail
