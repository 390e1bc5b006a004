#include "run/summary.h"

#include <cmath>

#include <fmt/format.h>

#include <strata/profile/stalls.h>
#include <strata/runtime/figure_text.h>
#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>
#include <strata/config/train_config.h>
#include <strata/infer/evaluation.h>
#include <strata/plan/tiers.h>

#include "run/lanes.h"
#include "run/rank_memory.h"

namespace strata {
namespace {

std::string_view to_string(StopReason stop_reason) {
  switch (stop_reason) {
    case StopReason::finished:
      return "finished";
    case StopReason::time_limit:
      return "time limit";
    case StopReason::write_budget:
      return "write budget";
    case StopReason::signal:
      return "stopped";
    case StopReason::budget_change:
      return "budget change";
  }
  return "";
}

std::string or_null(std::optional<double> number) {
  return number && std::isfinite(*number) ? fmt::format("{:.6f}", *number) : "null";
}

std::string validation_json(const std::optional<Validation>& validation) {
  if (!validation) return "null";
  return fmt::format("{{\"step\": {}, \"loss\": {}, \"loss_bits\": \"{}\"}}", validation->step,
                     or_null(validation->loss), double_bits(validation->loss));
}

std::string bits_json(std::optional<double> number) {
  return number ? str("\"", double_bits(*number), "\"") : "null";
}

// The bytes that the programs' activations on the device have used.
std::string activation_json(const Engine& engine) {
  std::string text;
  for (std::size_t i = 0; i < engine.plan().programs.size(); ++i)
    text +=
        str(text.empty() ? "" : ", ", "\"", engine.plan().programs[i].name, "\": ", engine.arena_used()[i]);
  return "{" + text + "}";
}

}  // namespace

std::string summary_json(const TrainOutcome& o, Engine& engine, std::uint64_t write_budget_bytes,
                         const ForecastComparison& expected) {
  return fmt::format(
      "{{\n  \"stop_reason\": \"{}\",\n  \"steps\": {},\n  \"train_loss\": {},\n  \"val_loss\": {},\n  "
      "\"val_loss_bits\": {},\n  \"val_accuracy\": {},\n  \"bits_per_byte\": {},\n"
      "  \"last_validation\": {},\n  \"best_validation\": {},\n"
      "  \"tokens_per_s\": {:.1f},\n  \"init_s\": {:.3f},\n  \"train_seconds\": {:.3f},\n  \"digest_s\": "
      "{:.3f},\n  \"skipped_steps\": {},\n  \"state_digest\": {},\n"
      "  \"peak_bytes\": {},\n  \"planned_bytes\": {},\n  \"budget_bytes\": {},\n  \"activation_bytes\": "
      "{},\n"
      "  \"peak_rss_bytes\": {},\n  \"rss_limit_bytes\": {},\n  \"processes\": {},\n"
      "  {},\n  \"bottleneck\": \"{}\",\n"
      "  \"moved_bytes\": {{\"h2d\": {}, \"d2h\": {}, \"nvme_read\": {}, \"nvme_write\": {}, \"network\": "
      "{}}},\n  "
      "\"lanes\": {},\n  \"forecast\": {},\n"
      "  \"steady_state\": {{\"heap_allocations\": {}, \"resources_created\": {}}},\n  "
      "\"nvme_bytes_written\": {},\n  \"write_budget_bytes\": {},\n  \"nvme\": "
      "\"{}\"\n}}\n",
      to_string(o.stop_reason), engine.steps(), or_null(o.train_loss), or_null(o.val_loss),
      bits_json(o.val_loss), or_null(o.val_pairs.n > 0 ? std::optional(o.val_pairs.accuracy) : std::nullopt),
      or_null(o.bits_per_byte), validation_json(o.last_validation), validation_json(o.best_validation),
      o.tokens_per_s, o.init_s, o.train_seconds, o.digest_s, o.skipped_steps,
      o.state_digest.empty() ? std::string("null") : str("\"", o.state_digest, "\""),
      tiers_json(engine.peak_bytes()), tiers_json(engine.plan().planned_peak),
      tiers_json(engine.plan().options.budgets), activation_json(engine), o.memory.front().peak_rss_bytes,
      o.memory.front().limit_bytes(), rank_memory_json(o.memory), stalls_json(o.times),
      bottleneck_text(o.times), o.moved.h2d, o.moved.d2h, o.moved.nvme_read, o.moved.nvme_write,
      o.moved.network, lanes_json(o.moved, o.lanes), forecast_comparison_json(expected, o),
      o.heap_allocations, o.resources_created, o.nvme_bytes_written,
      write_budget_bytes == kUnlimitedBytes ? std::string("null") : str(write_budget_bytes),
      engine.nvme_note());
}

std::string summary_text(const TrainOutcome& o, Engine& engine, const RunFolder& folder,
                         const ForecastComparison& expected) {
  std::string text =
      fmt::format("\n{} after step {}: training loss {:.4f}, {} tokens/s\n", to_string(o.stop_reason),
                  engine.steps(), o.train_loss, Figure(o.tokens_per_s).view());
  if (o.bits_per_byte)
    text += fmt::format("validation loss {:.4f} nats per token, {:.3f} bits per byte\n", *o.val_loss,
                        *o.bits_per_byte);
  else if (o.val_loss)
    text += fmt::format("validation loss {:.4f}{}\n", *o.val_loss,
                        o.val_pairs.n > 0 ? fmt::format(", accuracy {:.3f}", o.val_pairs.accuracy) : "");
  if (o.best_validation)
    text += fmt::format("best validation during training: {:.4f} at step {}; last: {:.4f} at step {}\n",
                        o.best_validation->loss, o.best_validation->step, o.last_validation->loss,
                        o.last_validation->step);
  if (o.skipped_steps > 0)
    text += str(plural(o.skipped_steps, "step"),
                " of this process skipped because of a gradient that was not finite\n");
  text += tiers_text(engine);
  text += lanes_text(o.moved, o.lanes);
  text += forecast_comparison_text(expected, o);
  text += fmt::format("{:.1f} s in steps: {}\n", o.train_seconds, bottleneck_text(o.times));
  return text + fmt::format("run folder: {}\n", folder.path());
}

}  // namespace strata
