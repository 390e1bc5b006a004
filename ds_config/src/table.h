#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <strata/ds_config/ds_config.h>

#include "document.h"

namespace strata::detail {

struct Setting {
  std::string key;    ///< a key of strata
  std::string value;  ///< JSON
};

/// The outcome of a value. An empty reason stands for that of the row.
struct Outcome {
  DsVerdict verdict = DsVerdict::taken;
  std::vector<Setting> settings = {};
  std::string reason = {};
};

struct TableRow;
using Convert = Outcome (*)(const TableRow& row, const Json& value, const Document& document);

/// A row with what the table keeps to itself.
struct TableRow {
  DsRow row;
  Convert convert = nullptr;  ///< set for keys that are taken, or whose verdict depends on more than `off`
  /// For keys that are refused: the values, as JSON separated by '|', that ask for nothing.
  std::string_view off = {};
  double min = 0, max = 1e15;    ///< limits of numbers that are taken
  bool auto_is_a_value = false;  ///< DeepSpeed's own "auto", which no trainer fills in
};

// The parts of the table.
std::span<const TableRow> batch_rows() noexcept;      ///< the batch, gradients, ranks
std::span<const TableRow> zero_rows() noexcept;       ///< zero_optimization without offload
std::span<const TableRow> offload_rows() noexcept;    ///< offload_*, aio, zenflow, activations
std::span<const TableRow> precision_rows() noexcept;  ///< fp16, bf16, amp, data_types
std::span<const TableRow> optimizer_rows() noexcept;
std::span<const TableRow> scheduler_rows() noexcept;
std::span<const TableRow> data_and_model_rows() noexcept;  ///< changes of data and models; compilers
std::span<const TableRow> report_rows() noexcept;          ///< logs, profilers, checkpoints, tuning

/// The row of a key, or of the pattern that covers it; nullptr if there is none.
const TableRow* find_row(std::string_view key);
/// Whether the table has rows below this key.
bool is_section(std::string_view key);
/// All keys, without patterns.
std::span<const std::string_view> known_keys();

/// A section that does nothing unless its `enabled` is true.
struct Switch {
  std::string_view section;
  bool is_on = false;  ///< if `enabled` is absent
};
std::span<const Switch> switches() noexcept;

/// A key of which DeepSpeed's default is not strata's.
struct Default {
  std::string_view key;
  JsonTree<Json> value;
};
/// The defaults that apply to this document.
std::vector<Default> defaults_for(const Document& document);
/// Their parts (optimizer.cpp, scheduler.cpp).
void add_optimizer_defaults(const Document& document, std::vector<Default>& into);
void add_scheduler_defaults(const Document& document, std::vector<Default>& into);

}  // namespace strata::detail
