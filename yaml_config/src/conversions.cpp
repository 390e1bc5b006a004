// Conversions of what both trainers take from transformers.
#include <algorithm>
#include <array>
#include <cmath>

#include <strata/runtime/str.h>

#include "table.h"

namespace strata::detail {
namespace {

struct NameOf {
  std::string_view theirs, ours;
};
constexpr std::array<NameOf, 4> kSchedules = {{{"cosine", "cosine"},
                                               {"linear", "linear"},
                                               {"constant", "constant"},
                                               {"constant_with_warmup", "constant"}}};
constexpr std::array<NameOf, 15> kOptimizers = {{{"adamw_torch", "adamw"},
                                                 {"adamw_torch_fused", "adamw"},
                                                 {"adamw_torch_xla", "adamw"},
                                                 {"adamw_hf", "adamw"},
                                                 {"adamw_apex_fused", "adamw"},
                                                 {"paged_adamw_32bit", "adamw"},
                                                 {"adamw_bnb_8bit", "adamw 8"},
                                                 {"adamw_8bit", "adamw 8"},
                                                 {"adamw_torch_8bit", "adamw 8"},
                                                 {"paged_adamw_8bit", "adamw 8"},
                                                 {"lion_32bit", "lion"},
                                                 {"lion_8bit", "lion 8"},
                                                 {"sgd", "sgd"},
                                                 {"adagrad", "adagrad"},
                                                 {"galore_adamw", "galore"}}};

std::string_view ours(std::span<const NameOf> names, const Json& value) {
  if (!value.is_string()) return {};
  const auto found = std::find_if(names.begin(), names.end(), [&](const NameOf& one) {
    return one.theirs == value.get_ref<const std::string&>();
  });
  return found == names.end() ? std::string_view() : found->ours;
}

}  // namespace

const Json& at(const Json& root, const char* key) {
  static const Json none;
  const auto found = root.find(key);
  return found == root.end() ? none : *found;
}

Json as_list(const Json& value) {
  if (!value.is_string()) return value;
  Json list = Json::array();
  std::string_view rest = value.get_ref<const std::string&>();
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(','), rest.size());
    std::string_view item = rest.substr(0, end);
    while (item.starts_with(' ')) item.remove_prefix(1);
    while (item.ends_with(' ')) item.remove_suffix(1);
    if (!item.empty()) list.push_back(std::string(item));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return list;
}

YamlOutcome schedule(const YamlRow&, const Json& value, const Json& root) {
  const std::string_view name = ours(kSchedules, value);
  if (name.empty()) return refused("strata has cosine, linear, constant and wsd (optim.schedule)");
  YamlOutcome outcome = taken("optim.schedule", std::string(name));
  if (name == "constant") return outcome;
  outcome.reason = "ends at 0";
  if (!is_off(at(root, "cosine_min_lr_ratio")))
    outcome.reason = "ends where cosine_min_lr_ratio says";
  else
    outcome.settings.emplace_back("optim.min_lr_ratio", 0);
  return outcome;
}

YamlOutcome optimizer(const YamlRow&, const Json& value, const Json&) {
  const std::string_view name = ours(kOptimizers, value);
  if (name.empty())
    return refused("strata has no such optimizer; strata config explain optim.name lists its own");
  const bool in_8_bits = name.ends_with(" 8");
  YamlOutcome outcome = taken("optim.name", std::string(name.substr(0, name.find(' '))));
  if (!in_8_bits) return outcome;
  outcome.settings.emplace_back("offload.states", "int8");
  outcome.reason = "moments in 8 bits, with blocks of strata's own";
  return outcome;
}

bool has_steps(const Json& root) {
  const Json& given = at(root, "max_steps");
  return given.is_number() && given.get<double>() > 0;
}

YamlOutcome epochs(const YamlRow&, const Json& value, const Json& root) {
  return has_steps(root) ? meaningless("max_steps takes precedence") : taken("train.epochs", value);
}

YamlOutcome steps(const YamlRow&, const Json& value, const Json& root) {
  return has_steps(root) ? taken("train.steps", value) : meaningless("not positive: the epochs count");
}

YamlOutcome warmup_steps(const YamlRow&, const Json& value, const Json&) {
  if (value.is_number() && value.get<double>() > 0 && value.get<double>() < 1)
    return taken("optim.warmup_ratio", value, "a number below 1 is a share of the steps");
  return taken("optim.warmup", value);
}

YamlOutcome every(const YamlRow& row, const Json& value, const Json&) {
  if (value.is_number_float() && value.get<double>() < 1)
    return refused(str("it is a share of the steps; ", row.strata_keys, " is a number of steps"));
  return taken(row.strata_keys, value);
}

YamlOutcome warmup_ratio(const YamlRow&, const Json& value, const Json& root) {
  if (!is_off(at(root, "warmup_steps"))) return meaningless("warmup_steps takes precedence");
  return taken("optim.warmup_ratio", value);
}

YamlOutcome modules(const YamlRow& row, const Json& value, const Json&) {
  if (is_off(value)) return meaningless("as in strata");
  // A text with the marks of a regular expression is one, commas and all.
  const bool is_expression = value.is_string() && value.get_ref<const std::string&>().find_first_of(
                                                      "\\*[]{}()|^$+?") != std::string::npos;
  const Json list = is_expression ? Json::array({value}) : as_list(value);
  const auto is_text = [](const Json& one) { return one.is_string(); };
  if (!list.is_array() || !std::all_of(list.begin(), list.end(), is_text))
    return refused("it must be a list of names");
  return taken(row.strata_keys, list);
}

YamlOutcome targets(const YamlRow& row, const Json& value, const Json& root) {
  if (value == "all" || value == "all-linear") return taken(row.strata_keys, Json::array({"all-linear"}));
  return modules(row, value, root);
}

YamlOutcome seq(const YamlRow&, const Json& value, const Json&) {
  return taken("model.seq", value, "longer records are split, not cut off or left out");
}

YamlOutcome unless_off(const YamlRow& row, const Json& value, const Json&) {
  return is_off(value) ? meaningless("as in strata") : refused(std::string(row.reason));
}

YamlOutcome dtype(const YamlRow& row, const Json& value, const Json&) {
  if (is_off(value)) return meaningless("not asked for");
  if (value == "auto") return meaningless("train.dtype=auto is bf16 where it is the fastest");
  return taken("train.dtype", row.key == "fp16" || row.key == "float16" ? "f16" : "bf16",
               "parameters and activations; masters are f32");
}

}  // namespace strata::detail
