#include <algorithm>
#include <cmath>
#include <cstdint>

#include <strata/runtime/str.h>

#include "conversions.h"

// zero_optimization without what it offloads.
namespace strata::detail {
namespace {

Outcome stage_of(std::int64_t stage) {
  Outcome outcome = taken("parallel.zero", stage);
  // Gradients are then added once a step, as DeepSpeed's stage 1 does.
  if (stage == 1) outcome.settings.push_back({"parallel.reduce", "\"once\""});
  return outcome;
}

Outcome stage(const TableRow& row, const Json& value, const Document&) {
  if (!is_integer(value) || value.get<double>() < 0 || value.get<double>() > row.max)
    return not_in_range(row, "an integer");
  return stage_of(value.get<std::int64_t>());
}

/// The old form: a boolean in place of the section.
Outcome is_enabled(const TableRow&, const Json& value, const Document&) {
  if (!value.is_boolean()) return refused("it must be an object");
  return stage_of(value == true ? 1 : 0);
}

/// Chunks are whole pages of elements, and every rank has as many of them.
std::int64_t chunk_elems(double sub_group) {
  const auto elems = static_cast<std::int64_t>(sub_group);
  const std::int64_t unit = elems >= std::int64_t{1} << 20 ? std::int64_t{1} << 18 : 4096;
  return std::max(elems / unit, std::int64_t{1}) * unit;
}

constexpr double kSubGroupDefault = 1e9;

Outcome sub_group(const TableRow& row, const Json& value, const Document&) {
  if (!is_integer(value) || value.get<double>() < 0 || value.get<double>() > row.max)
    return not_in_range(row, "an integer");
  if (value.get<double>() == kSubGroupDefault || value.get<double>() == 0)
    return meaningless("DeepSpeed's default; strata decides offload.chunk by the budgets");
  return taken("offload.chunk", chunk_elems(value.get<double>()),
               "elements that are moved and updated together, rounded to whole blocks");
}

Outcome prefetch(const TableRow& row, const Json& value, const Document& document) {
  if (!is_integer(value) || value.get<double>() < 0) return not_in_range(row, "an integer");
  if (value.get<double>() == 0) return taken("offload.prefetch", 0, "nothing is fetched ahead");
  const double group = document.number("zero_optimization.sub_group_size", kSubGroupDefault);
  if (group == kSubGroupDefault || group <= 0)
    return meaningless("elements; strata decides offload.prefetch, which counts chunks, by the budgets");
  const auto chunk = static_cast<double>(chunk_elems(group));
  return taken("offload.prefetch",
               static_cast<std::int64_t>(std::min(std::ceil(value.get<double>() / chunk), row.max)),
               "elements / offload.chunk, rounded up");
}

Outcome shard_ranks(const TableRow& row, const Json& value, const Document& document) {
  if (is_integer(value) && value.get<double>() <= 0) return meaningless("all ranks share one copy");
  return to_integer(row, value, document);
}

constexpr std::string_view kChunks = "strata moves and exchanges chunks, which it sizes itself";
constexpr std::string_view kBudget =
    "strata keeps on the device what fits into its budget, and knows when "
    "each parameter is used next";
constexpr std::string_view kRecorded = "strata knows the accesses of a model before it runs";
constexpr std::string_view kExchangeIsWhole = "strata does not quantize what ranks exchange";
constexpr TableRow kZeroRows[] = {
    {{"zero_optimization", DsVerdict::taken, "parallel.zero parallel.reduce", "the old form of stage"},
     is_enabled},
    {{"zero_optimization.stage", DsVerdict::taken, "parallel.zero parallel.reduce",
      "what ranks divide; one rank has all of it"},
     stage,
     {},
     0,
     3},
    {{"zero_optimization.contiguous_gradients", DsVerdict::meaningless, "",
      "gradients are contiguous in their chunk"}},
    {{"zero_optimization.reduce_scatter", DsVerdict::meaningless, "parallel.zero",
      "which collective is used changes no result"}},
    {{"zero_optimization.reduce_bucket_size", DsVerdict::meaningless, "offload.chunk", kChunks}},
    {{"zero_optimization.use_multi_rank_bucket_allreduce", DsVerdict::meaningless, "", kChunks}},
    {{"zero_optimization.allgather_partitions", DsVerdict::meaningless, "",
      "which collective is used changes no result"}},
    {{"zero_optimization.allgather_bucket_size", DsVerdict::meaningless, "offload.chunk", kChunks}},
    {{"zero_optimization.overlap_comm", DsVerdict::meaningless, "", "strata always overlaps"}},
    {{"zero_optimization.compute_grad_norm", DsVerdict::meaningless, "", "the norm is always computed"}},
    {{"zero_optimization.load_from_fp32_weights", DsVerdict::meaningless, "",
      "masters begin with all bits that were read"}},
    {{"zero_optimization.elastic_checkpoint", DsVerdict::meaningless, "",
      "a checkpoint does not depend on the number of ranks"}},
    {{"zero_optimization.sub_group_size", DsVerdict::taken, "offload.chunk", "elements of an update"},
     sub_group,
     {},
     0,
     1e12},
    {{"zero_optimization.stage3_prefetch_bucket_size", DsVerdict::taken, "offload.prefetch",
      "elements fetched ahead"},
     prefetch,
     {},
     0,
     65536},
    {{"zero_optimization.stage3_param_persistence_threshold", DsVerdict::meaningless, "memory.device",
      kBudget}},
    {{"zero_optimization.stage3_model_persistence_threshold", DsVerdict::meaningless, "memory.device",
      kBudget}},
    {{"zero_optimization.stage3_max_live_parameters", DsVerdict::meaningless, "memory.device", kBudget}},
    {{"zero_optimization.stage3_max_reuse_distance", DsVerdict::meaningless, "memory.device", kBudget}},
    {{"zero_optimization.stage3_gather_16bit_weights_on_model_save", DsVerdict::meaningless, "",
      "strata export writes whole weights"}},
    {{"zero_optimization.stage3_module_granularity_threshold", DsVerdict::meaningless, "offload.chunk",
      kChunks}},
    {{"zero_optimization.stage3_use_all_reduce_for_fetch_params", DsVerdict::meaningless, "",
      "which collective is used changes no result"}},
    {{"zero_optimization.stage3_allgather_sequential", DsVerdict::meaningless, "", kChunks}},
    {{"zero_optimization.ignore_unused_parameters", DsVerdict::meaningless, "train.freeze", kRecorded}},
    {{"zero_optimization.legacy_stage1", DsVerdict::meaningless, "parallel.zero",
      "there is one implementation"}},
    {{"zero_optimization.round_robin_gradients", DsVerdict::meaningless, "", kChunks}},
    {{"zero_optimization.parameter_alignment", DsVerdict::meaningless, "",
      "tensors are aligned in their chunk"}},
    {{"zero_optimization.zero_hpz_partition_size", DsVerdict::meaningless, "parallel.shard_ranks",
      "a second copy of parameters for traffic alone; parallel.shard_ranks divides all states among some "
      "ranks"}},
    {{"zero_optimization.mics_shard_size", DsVerdict::taken, "parallel.shard_ranks",
      "ranks that hold one copy of the states together"},
     shard_ranks,
     {},
     1,
     65536},
    {{"zero_optimization.mics_hierarchical_params_gather", DsVerdict::meaningless, "",
      "which collective is used changes no result"}},
    {{"zero_optimization.zero_quantized_weights", DsVerdict::refused, "", kExchangeIsWhole},
     nullptr,
     "false"},
    {{"zero_optimization.zero_quantized_nontrainable_weights", DsVerdict::refused, "",
      "strata stores frozen weights in train.dtype"},
     nullptr,
     "false"},
    {{"zero_optimization.zero_quantized_gradients", DsVerdict::refused, "", kExchangeIsWhole},
     nullptr,
     "false"},
    {{"zero_optimization.zeropp_loco_param.*", DsVerdict::refused, "", kExchangeIsWhole}},
    {{"zero_optimization.memory_efficient_linear", DsVerdict::meaningless, "",
      "no operation keeps a copy of its weight"}},
    {{"zero_optimization.pipeline_loading_checkpoint", DsVerdict::meaningless, "",
      "checkpoints are read in pieces"}},
    {{"zero_optimization.override_module_apply", DsVerdict::meaningless, "", kRecorded}},
    {{"zero_optimization.log_trace_cache_warnings", DsVerdict::meaningless, "", kRecorded}},
    {{"zero_optimization.enable_sanity_checks", DsVerdict::meaningless, "", "strata's checks are always on"}},
    {{"zero_optimization.save_muon_momentum_buffer_in_memory", DsVerdict::refused, "", "strata has no Muon"},
     nullptr,
     "false"},
    {{"zero_optimization.leaf_module.classes", DsVerdict::meaningless, "", kRecorded}},
    {{"zero_optimization.leaf_module.names", DsVerdict::meaningless, "", kRecorded}},
    {{"zero_optimization.leaf_module.name_suffixes", DsVerdict::meaningless, "", kRecorded}},
};

}  // namespace

std::span<const TableRow> zero_rows() noexcept { return kZeroRows; }

}  // namespace strata::detail
