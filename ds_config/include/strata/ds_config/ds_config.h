#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <strata/runtime/status.h>

namespace strata {

/// The verdict on a key of DeepSpeed's configuration.
enum class DsVerdict : std::uint8_t {
  taken,        ///< one or more keys of strata are set
  automatic,    ///< "auto", which the Hugging Face Trainer fills in: left to strata
  meaningless,  ///< changes no result here: strata does it anyway, or has no such buffer
  refused,      ///< asks for something that strata does not do
  unknown,      ///< no key of DeepSpeed
};
std::string_view to_string(DsVerdict verdict) noexcept;

/// One row of the table. `key` is dotted; a key that ends in ".*" stands for everything below it.
struct DsRow {
  std::string_view key;
  /// The verdict on a value that asks for something. Values that ask for nothing, such as `false`, are
  /// meaningless.
  DsVerdict verdict = DsVerdict::meaningless;
  /// Separated by blanks. Of a key that is taken: what it may set. Of the others: where strata decides it.
  std::string_view strata_keys;
  std::string_view reason;
};

/// All rows, in the order of DeepSpeed's documentation. Other names of a key have rows of their own.
std::span<const DsRow> ds_rows();

/// The finding about one key of a document. A key that sets two keys of strata has two findings.
struct DsFinding {
  std::string key;    ///< as it was written
  std::string value;  ///< JSON
  DsVerdict verdict = DsVerdict::unknown;
  std::string strata_key;    ///< empty if there is none
  std::string strata_value;  ///< JSON, which is also TOML; empty if nothing is set
  std::string reason;
  bool is_default = false;  ///< the document lacks the key, and DeepSpeed's default is not strata's
};

/// The findings of all keys in `json`, in its order, with DeepSpeed's defaults after the section that they
/// belong to. Comments are allowed. Errors: `invalid` if it is not one JSON object, or has a key twice.
Result<std::vector<DsFinding>> convert_ds_config(std::string_view json);

/// Ok, or `unsupported` with one line for each key that is refused or unknown.
Status ds_config_problems(std::span<const DsFinding> findings);

/// The settings as a configuration file of `strata train`.
std::string ds_config_toml(std::span<const DsFinding> findings);
/// One line for each finding, with columns.
std::string ds_config_table(std::span<const DsFinding> findings);

}  // namespace strata
