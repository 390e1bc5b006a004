#include <algorithm>
#include <cstdint>
#include <string>

#include <strata/runtime/str.h>

#include "conversions.h"

namespace strata::detail {
namespace {

// In DeepSpeed the first two steps have the rate of iteration 0 and step s that of iteration s - 2. In strata
// step s has that of s while the rate rises, and of s - 1 while it falls, as in PyTorch; DeepSpeed's cosine
// is an iteration ahead of its line.
constexpr std::string_view kShift = "the same rates, two steps earlier than DeepSpeed's";

std::string scheduler_of(const Document& document) {
  const Json* const type = document.value("scheduler.type");
  return type != nullptr && type->is_string() ? type->get<std::string>() : std::string();
}

Outcome scheduler_type(const TableRow&, const Json& value, const Document& document) {
  if (value.is_null()) {
    Outcome none = taken("optim.schedule", "constant", "without a scheduler DeepSpeed's rate is constant");
    none.settings.push_back({"optim.warmup", "0"});
    return none;
  }
  const std::string name = scheduler_of(document);
  if (name == "WarmupLR") return taken("optim.schedule", "constant", std::string(kShift));
  if (name == "WarmupCosineLR")
    return taken("optim.schedule", "cosine", str(kShift, ", and in the same steps while it falls"));
  if (name == "WarmupDecayLR") {
    Outcome linear = taken("optim.schedule", "linear", str(kShift, ", one step while it falls"));
    linear.settings.push_back({"optim.min_lr_ratio", "0"});
    return linear;
  }
  if (name == "OneCycle" || name == "LRRangeTest")
    return refused(
        "strata's rates fall after one warm-up; optim.schedule is cosine, linear, constant or wsd");
  return refused("it must be WarmupLR, WarmupDecayLR or WarmupCosineLR");
}

Outcome warmup_steps(const TableRow& row, const Json& value, const Document& document) {
  Outcome outcome = to_integer(row, value, document);
  if (outcome.verdict == DsVerdict::taken && value.get<std::int64_t>() < 2)
    return taken("optim.warmup", 2, "DeepSpeed warms up for at least 2 steps");
  return outcome;
}

Outcome total_steps(const TableRow& row, const Json& value, const Document& document) {
  if (scheduler_of(document) == "WarmupLR") return refused("WarmupLR has no such parameter");
  return to_integer(row, value, document);
}

constexpr std::string_view kStart = "strata's warm-up begins at 0";
constexpr std::string_view kOneCycle = "of OneCycle, which strata cannot represent";
constexpr std::string_view kRangeTest = "of LRRangeTest, which strata cannot represent";
constexpr TableRow kSchedulerRows[] = {
    {{"scheduler.type", DsVerdict::taken, "optim.schedule optim.min_lr_ratio optim.warmup", kShift},
     scheduler_type},
    {{"scheduler.params.total_num_steps", DsVerdict::taken, "train.steps",
      "steps of the schedule and the run"},
     total_steps,
     {},
     1},
    {{"scheduler.params.warmup_num_steps", DsVerdict::taken, "optim.warmup", "steps of linear warm-up"},
     warmup_steps,
     {},
     1},
    {{"scheduler.params.warmup_max_lr", DsVerdict::taken, "optim.lr", "the rate after the warm-up"},
     to_number,
     {},
     0,
     1e6},
    {{"scheduler.params.warmup_min_lr", DsVerdict::refused, "", kStart}, nullptr, "0"},
    {{"scheduler.params.warmup_min_ratio", DsVerdict::refused, "", kStart}, nullptr, "0"},
    {{"scheduler.params.warmup_type", DsVerdict::refused, "optim.warmup",
      "strata's warm-up is linear, and DeepSpeed's default is log: set it to linear"},
     nullptr,
     "\"linear\""},
    {{"scheduler.params.cos_min_ratio", DsVerdict::taken, "optim.min_lr_ratio",
      "the rate after the last step over the first"},
     to_number,
     {},
     0,
     1},
    {{"scheduler.params.last_batch_iteration", DsVerdict::refused, "",
      "a schedule begins with the run; strata train --resume continues it"},
     nullptr,
     "-1"},
    {{"scheduler.params.cycle_min_lr", DsVerdict::refused, "", kOneCycle}},
    {{"scheduler.params.cycle_max_lr", DsVerdict::refused, "", kOneCycle}},
    {{"scheduler.params.decay_lr_rate", DsVerdict::refused, "", kOneCycle}},
    {{"scheduler.params.cycle_first_step_size", DsVerdict::refused, "", kOneCycle}},
    {{"scheduler.params.cycle_second_step_size", DsVerdict::refused, "", kOneCycle}},
    {{"scheduler.params.cycle_first_stair_count", DsVerdict::refused, "", kOneCycle}},
    {{"scheduler.params.cycle_second_stair_count", DsVerdict::refused, "", kOneCycle}},
    {{"scheduler.params.decay_step_size", DsVerdict::refused, "", kOneCycle}},
    {{"scheduler.params.cycle_momentum", DsVerdict::refused, "", kOneCycle}},
    {{"scheduler.params.cycle_min_mom", DsVerdict::refused, "", kOneCycle}},
    {{"scheduler.params.cycle_max_mom", DsVerdict::refused, "", kOneCycle}},
    {{"scheduler.params.decay_mom_rate", DsVerdict::refused, "", kOneCycle}},
    {{"scheduler.params.lr_range_test_min_lr", DsVerdict::refused, "", kRangeTest}},
    {{"scheduler.params.lr_range_test_step_size", DsVerdict::refused, "", kRangeTest}},
    {{"scheduler.params.lr_range_test_step_rate", DsVerdict::refused, "", kRangeTest}},
    {{"scheduler.params.lr_range_test_staircase", DsVerdict::refused, "", kRangeTest}},
};

}  // namespace

std::span<const TableRow> scheduler_rows() noexcept { return kSchedulerRows; }

void add_scheduler_defaults(const Document& document, std::vector<Default>& into) {
  const auto add = [&](std::string_view key, Json value) {
    JsonTree tree(std::move(value));
    if (document.find(key) == nullptr) into.push_back({key, std::move(tree)});
  };
  const std::string type = scheduler_of(document);
  if (document.find("scheduler") == nullptr) {
    // A file for the Hugging Face Trainer leaves the schedule to it.
    if (document.find("optimizer") != nullptr && !document.has_autos())
      into.push_back({"scheduler.type", {}});
    return;
  }
  if (!type.starts_with("Warmup")) return;
  add("scheduler.params.warmup_num_steps", 1000);
  add("scheduler.params.warmup_type", "log");
  if (type == "WarmupDecayLR") add("scheduler.params.warmup_max_lr", 0.001);
  if (type == "WarmupCosineLR") add("scheduler.params.cos_min_ratio", 0.0001);
}

}  // namespace strata::detail
