#pragma once

#include <cmath>
#include <string>

#include <fmt/format.h>

#include <strata/runtime/io/io.h>
#include <strata/runtime/status.h>

namespace strata::test {

/// A line of metrics.jsonl as a run writes it.
inline std::string metrics_line(int step, double loss, double step_s) {
  return fmt::format(
      "{{\"step\": {}, \"loss\": {:.6f}, \"loss_bits\": \"{:08x}\", \"lr\": {:.6g}, \"grad_norm\": {:.6g}, "
      "\"clip_factor\": 1, "
      "\"skipped\": false, \"tokens_per_s\": {:.1f}, \"step_s\": {:.6f}, \"compute_s\": {:.6f}, "
      "\"exposed_wait_s\": {{\"h2d\": "
      "{:.6f}, \"nvme\": {:.6f}, \"host\": 0.000100}}, \"used_bytes\": {{\"device\": 33124352, \"pinned\": "
      "24883200, \"nvme\": "
      "0}}, \"moved_bytes\": {{\"h2d\": {}, \"d2h\": 24870928, \"nvme_read\": 0, \"nvme_write\": 0, "
      "\"network\": 0}}}}\n",
      step, loss, static_cast<unsigned>(loss * 1e6), 1e-3 / step, 1 + 1.0 / step, 4096 / step_s, step_s,
      0.8 * step_s, 0.15 * step_s, 0.04 * step_s, step == 1 ? 1054720 : 63266832);
}

/// Writes a run folder of so many steps, whose loss falls from 7, and whose steps take `step_s`, or up to a
/// tenth more.
inline void write_run(const std::string& folder, int steps, double step_s = 0.5,
                      const std::string& seq = "128") {
  Io& io = posix_io();
  must(io.make_dirs(folder));
  std::string metrics;
  for (int step = 1; step <= steps; ++step) {
    metrics += metrics_line(step, 3 + 4 / std::sqrt(step), step_s * (1 + 0.1 * ((step * 7919) % 101) / 101));
    if (step % 100 == 0)
      metrics += fmt::format(
          "{{\"step\": {}, \"val_loss\": {:.6f}, \"val_loss_bits\": \"0\", \"val_micro_batches\": 8}}\n",
          step, 3.2 + 4 / std::sqrt(step));
  }
  must(write_text_atomically(io, folder + "/metrics.jsonl", metrics));
  must(write_text_atomically(
      io, folder + "/config.resolved.toml",
      "[model]\nseq = " + seq +
          "       # argument model.seq\nname = \"a # b\" # default\n\n[train]\nsteps = " +
          std::to_string(steps) + " # preset austen-5m\n"));
  must(write_text_atomically(
      io, folder + "/plan.json",
      "{\"dtype\": \"bf16\", \"parameters\": 5033984, \"tiers\": {\"device\": {\"budget_bytes\": 33554432, "
      "\"planned_bytes\": 33124352, \"home_bytes\": 22708224}, \"pinned\": {\"budget_bytes\": null, "
      "\"planned_bytes\": 24883200, "
      "\"home_bytes\": 16760832}, \"nvme\": {\"budget_bytes\": 0, \"planned_bytes\": 0, \"home_bytes\": 0}}, "
      "\"chunk_homes\": "
      "{\"param\": \"ddpp\", \"m\": \"pppn\"}}"));
  must(write_text_atomically(io, folder + "/samples.txt",
                             "--- step 10 ---\nIt is a <truth> & so on\n\n--- step 20 ---\nsecond\n"));
}

}  // namespace strata::test
