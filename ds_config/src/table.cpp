#include "table.h"

#include <algorithm>
#include <array>

#include <strata/runtime/str.h>

#include "other_names.h"

namespace strata::detail {
namespace {

constexpr Switch kSwitches[] = {
    {"fp16"},
    {"bf16"},
    {"amp"},
    {"torch_autocast"},
    {"weight_quantization", true},
    {"flops_profiler"},
    {"comms_logger"},
    {"autotuning"},
    {"tensorboard"},
    {"wandb"},
    {"csv_monitor"},
    {"comet"},
    {"hybrid_engine"},
    {"expert_parallel"},
    {"elasticity"},
    {"curriculum_learning"},
    {"progressive_layer_drop"},
    {"eigenvalue"},
    {"quantize_training"},
    {"data_efficiency"},
    {"data_efficiency.data_sampling"},
    {"data_efficiency.data_sampling.curriculum_learning"},
    {"data_efficiency.data_sampling.dynamic_batching"},
    {"data_efficiency.data_routing"},
    {"data_efficiency.data_routing.random_ltd"},
};

const std::vector<TableRow>& table() {
  static const std::vector<TableRow> rows = [] {
    std::vector<TableRow> all;
    for (const auto part : {batch_rows(), optimizer_rows(), scheduler_rows(), precision_rows(), zero_rows(),
                            offload_rows(), data_and_model_rows(), report_rows()})
      all.insert(all.end(), part.begin(), part.end());
    return all;
  }();
  return rows;
}

/// The rows and their other names; `text` owns the keys of the latter.
struct PublicRows {
  std::vector<std::string> text;
  std::vector<DsRow> rows;
};

PublicRows make_public_rows() {
  PublicRows made;
  std::vector<DsRow> named;
  for (const TableRow& row : table()) {
    made.rows.push_back(row.row);
    for (const OtherName& other : other_names())
      if (row.row.key == other.key || is_below(row.row.key, other.key)) {
        made.text.push_back(str(other.name, row.row.key.substr(other.key.size())));
        named.push_back(row.row);
      }
  }
  for (std::size_t i = 0; i < named.size(); ++i) {
    named[i].key = made.text[i];
    made.rows.push_back(named[i]);
  }
  return made;
}

}  // namespace

std::span<const Switch> switches() noexcept { return kSwitches; }

const TableRow* find_row(std::string_view key) {
  const TableRow* pattern = nullptr;
  for (const TableRow& row : table()) {
    if (row.row.key == key) return &row;
    if (row.row.key.ends_with(".*") && is_below(key, row.row.key.substr(0, row.row.key.size() - 2)))
      pattern = &row;
  }
  return pattern;
}

bool is_section(std::string_view key) {
  return std::any_of(table().begin(), table().end(),
                     [&](const TableRow& row) { return is_below(row.row.key, key); });
}

std::span<const std::string_view> known_keys() {
  static const std::vector<std::string_view> keys = [] {
    std::vector<std::string_view> all;
    for (const DsRow& row : ds_rows())
      if (!row.key.ends_with(".*")) all.push_back(row.key);
    return all;
  }();
  return keys;
}

std::vector<Default> defaults_for(const Document& document) {
  std::vector<Default> all;
  if (document.find("fp16") == nullptr && document.find("bf16") == nullptr)
    all.push_back({"bf16.enabled", JsonTree<Json>(false)});
  add_optimizer_defaults(document, all);
  add_scheduler_defaults(document, all);
  return all;
}

}  // namespace strata::detail

namespace strata {

std::span<const DsRow> ds_rows() {
  static const detail::PublicRows all = detail::make_public_rows();
  return all.rows;
}

std::string_view to_string(DsVerdict verdict) noexcept {
  static constexpr std::array<std::string_view, 5> kNames = {"taken", "auto", "meaningless", "refused",
                                                             "unknown"};
  return kNames[static_cast<std::size_t>(verdict)];
}

}  // namespace strata
