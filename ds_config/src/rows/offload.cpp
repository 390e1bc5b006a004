#include <algorithm>
#include <cstdint>
#include <string>

#include <strata/runtime/str.h>

#include "conversions.h"

// Keys for offloading and its transfers.
namespace strata::detail {
namespace {

constexpr std::string_view kOptimizer = "zero_optimization.offload_optimizer",
                           kParam = "zero_optimization.offload_param";

bool is_on_nvme(const Document& document, std::string_view section) {
  const Json* const device = document.value(str(section, ".device"));
  return device != nullptr && is_text(*device, "nvme");
}

/// offload_optimizer.device and offload_param.device.
Outcome device(const TableRow&, const Json& value, const Document&) {
  if (is_text(value, "none")) return meaningless("strata uses the device first, as far as its budget goes");
  if (is_text(value, "cpu"))
    return taken("memory.pinned", "auto", "what the device has no room for is in pinned RAM");
  if (is_text(value, "nvme"))
    return taken(
        "memory.nvme", "unlimited",
        "what neither the device nor pinned RAM has room for is on NVMe; set memory.pinned to spare RAM");
  return refused("it must be none, cpu or nvme");
}

/// The old switches.
Outcome cpu_offload(const TableRow&, const Json& value, const Document&) {
  if (!value.is_boolean()) return not_a_boolean();
  if (value == false) return meaningless("strata uses the device first, as far as its budget goes");
  return taken("memory.pinned", "auto", "what the device has no room for is in pinned RAM");
}

/// One folder for optimizer and parameters, or both, over which strata stripes.
Outcome nvme_path(const TableRow& row, const Json& value, const Document& document) {
  const bool is_param = row.row.key.starts_with(kParam);
  if (!value.is_string() || is_text(value, "")) return refused("it must be the name of a folder");
  if (!is_on_nvme(document, is_param ? kParam : kOptimizer))
    return meaningless("the device is not nvme: nothing is written there");
  JsonTree<Json> tree(Json::array());
  Json& dirs = tree.root;
  for (const std::string_view section : {kOptimizer, kParam})
    if (const Json* const dir = document.value(str(section, ".nvme_path"));
        dir != nullptr && is_on_nvme(document, section) &&
        std::find(dirs.begin(), dirs.end(), *dir) == dirs.end())
      dirs.push_back(*dir);
  return taken("memory.nvme_dir", dirs.size() == 1 ? dirs[0] : dirs,
               dirs.size() == 1 ? "" : "both folders, over which all is striped");
}

Outcome super_offload(const TableRow&, const Json& value, const Document&) {
  if (!value.is_boolean()) return not_a_boolean();
  if (value == false) return meaningless("offload.step_mode decides");
  return taken("offload.step_mode", "speculative",
               "updates during backward, rolled back where they were wrong");
}

/// A boolean that offloads activations.
Outcome activations(const TableRow&, const Json& value, const Document&) {
  if (!value.is_boolean()) return not_a_boolean();
  if (value == false) return meaningless("offload.activations decides");
  return taken("offload.activations", "pinned", "activations are in pinned RAM between forward and backward");
}

Outcome block(const TableRow& row, const Json& value, const Document& document) {
  Outcome outcome = to_integer(row, value, document);
  if (outcome.verdict != DsVerdict::taken || value.get<std::int64_t>() % 4096 == 0) return outcome;
  return taken("io.block", value.get<std::int64_t>() / 4096 * 4096, "rounded down to a multiple of 4096");
}

constexpr std::string_view kPinned = "strata's RAM is always pinned";
constexpr std::string_view kBuffers = "strata sizes its buffers for the largest chunk";
constexpr std::string_view kOverlaps = "strata always overlaps reads, updates and writes";
constexpr std::string_view kRecomputed = "strata decides by tensor what is recomputed";
constexpr std::string_view kZenFlow = "strata updates every parameter in every step: the algorithm is exact";
constexpr TableRow kOffloadRows[] = {
    {{"zero_optimization.offload_param.device", DsVerdict::taken, "memory.pinned memory.nvme",
      "where parameters may be"},
     device},
    {{"zero_optimization.offload_param.nvme_path", DsVerdict::taken, "memory.nvme_dir", "the folder on NVMe"},
     nvme_path},
    {{"zero_optimization.offload_param.buffer_count", DsVerdict::meaningless, "", kBuffers}},
    {{"zero_optimization.offload_param.buffer_size", DsVerdict::meaningless, "", kBuffers}},
    {{"zero_optimization.offload_param.max_in_cpu", DsVerdict::meaningless, "memory.pinned",
      "elements; pinned RAM is used before NVMe, as far as its budget in bytes goes"}},
    {{"zero_optimization.offload_param.pin_memory", DsVerdict::meaningless, "", kPinned}},
    {{"zero_optimization.offload_optimizer.device", DsVerdict::taken, "memory.pinned memory.nvme",
      "where optimizer states may be"},
     device},
    {{"zero_optimization.offload_optimizer.nvme_path", DsVerdict::taken, "memory.nvme_dir",
      "the folder on NVMe"},
     nvme_path},
    {{"zero_optimization.offload_optimizer.buffer_count", DsVerdict::meaningless, "", kBuffers}},
    {{"zero_optimization.offload_optimizer.buffer_size", DsVerdict::meaningless, "", kBuffers}},
    {{"zero_optimization.offload_optimizer.pin_memory", DsVerdict::meaningless, "", kPinned}},
    {{"zero_optimization.offload_optimizer.pipeline_read", DsVerdict::meaningless, "", kOverlaps}},
    {{"zero_optimization.offload_optimizer.pipeline_write", DsVerdict::meaningless, "", kOverlaps}},
    {{"zero_optimization.offload_optimizer.pipeline", DsVerdict::meaningless, "", kOverlaps}},
    {{"zero_optimization.offload_optimizer.fast_init", DsVerdict::meaningless, "",
      "the first moments are not read"}},
    {{"zero_optimization.offload_optimizer.ratio", DsVerdict::meaningless, "memory.device",
      "the share that is offloaded follows from the budgets"}},
    {{"zero_optimization.offload_optimizer.super_offload", DsVerdict::taken, "offload.step_mode",
      "when the update runs"},
     super_offload},
    {{"zero_optimization.offload_optimizer.cpuadam_cores_perc", DsVerdict::meaningless,
      "cpu.threads cpu.service_cores", "the same threads compute all that the CPU does"}},
    {{"zero_optimization.cpu_offload", DsVerdict::taken, "memory.pinned",
      "the old form of offload_optimizer"},
     cpu_offload},
    {{"zero_optimization.cpu_offload_param", DsVerdict::taken, "memory.pinned",
      "the old form of offload_param"},
     cpu_offload},
    {{"zero_optimization.cpu_offload_params", DsVerdict::taken, "memory.pinned",
      "the old form of offload_param"},
     cpu_offload},
    {{"zero_optimization.cpu_offload_use_pin_memory", DsVerdict::meaningless, "", kPinned}},
    {{"zero_optimization.zenflow", DsVerdict::refused, "", kZenFlow}},
    {{"zero_optimization.zenflow.topk_ratio", DsVerdict::refused, "", kZenFlow}},
    {{"zero_optimization.zenflow.select_strategy", DsVerdict::refused, "", kZenFlow},
     nullptr,
     {},
     0,
     0,
     true},
    {{"zero_optimization.zenflow.select_interval", DsVerdict::refused, "", kZenFlow},
     nullptr,
     {},
     0,
     0,
     true},
    {{"zero_optimization.zenflow.update_interval", DsVerdict::refused, "", kZenFlow},
     nullptr,
     {},
     0,
     0,
     true},
    {{"zero_optimization.zenflow.overlap_step", DsVerdict::refused, "offload.step_mode", kZenFlow}},
    {{"zero_optimization.zenflow.offload", DsVerdict::refused, "", kZenFlow}},
    {{"zero_optimization.zenflow.auto_ratio", DsVerdict::refused, "", kZenFlow}},
    {{"zero_optimization.zenflow.full_warm_up_rounds", DsVerdict::refused, "", kZenFlow}},
    {{"zero_optimization.zenflow.pt_reserved_cores_perc", DsVerdict::refused, "cpu.service_cores", kZenFlow}},
    {{"zero_optimization.zenflow.steps_per_epoch", DsVerdict::refused, "", kZenFlow}},
    {{"aio.block_size", DsVerdict::taken, "io.block", "bytes of a read or write"}, block, {}, 4096, 1 << 30},
    {{"aio.queue_depth", DsVerdict::taken, "io.queue_depth", "blocks in flight"}, to_integer, {}, 1, 4096},
    {{"aio.intra_op_parallelism", DsVerdict::meaningless, "io.engine",
      "a read is as many blocks in flight as the queue holds"}},
    {{"aio.thread_count", DsVerdict::meaningless, "io.engine",
      "a read is as many blocks in flight as the queue holds"}},
    {{"aio.single_submit", DsVerdict::meaningless, "io.engine", "blocks are submitted together"}},
    {{"aio.overlap_events", DsVerdict::meaningless, "io.engine", kOverlaps}},
    {{"aio.use_gds", DsVerdict::meaningless, "io.direct",
      "what is on NVMe reaches the device through pinned RAM"}},
    {{"activation_checkpointing.partition_activations", DsVerdict::meaningless, "",
      "no activation is on two ranks"}},
    {{"activation_checkpointing.cpu_checkpointing", DsVerdict::taken, "offload.activations",
      "activations in RAM"},
     activations},
    {{"activation_checkpointing.contiguous_memory_optimization", DsVerdict::meaningless, "",
      "activations have fixed places in one arena"}},
    {{"activation_checkpointing.number_checkpoints", DsVerdict::meaningless, "train.recompute", kRecomputed}},
    {{"activation_checkpointing.synchronize_checkpoint_boundary", DsVerdict::meaningless, "",
      "strata waits for nothing that it does not need"}},
    {{"activation_checkpointing.profile", DsVerdict::meaningless, "log.trace",
      "metrics.jsonl and trace.json have the times"}},
};

}  // namespace

std::span<const TableRow> offload_rows() noexcept { return kOffloadRows; }

}  // namespace strata::detail
