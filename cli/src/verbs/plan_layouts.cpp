#include "verbs/plan_layouts.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <strata/config/load_config.h>
#include <strata/runtime/config/json.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

namespace strata::cli {
namespace {

constexpr std::size_t kTried = 5;

double waits_share(const DryRunLayout& layout) {
  double waits = 0;
  for (const double each : layout.waits_s) waits += each;
  return waits / (layout.step_s * static_cast<double>(layout.waits_s.size()));
}
std::uint64_t most(const DryRunLayout& layout, Tier tier) {
  std::uint64_t bytes = 0;
  for (const TierBytes& peak : layout.peak) bytes = std::max(bytes, peak[static_cast<std::size_t>(tier)]);
  return bytes;
}

// Names the part that takes most of the step besides computing, and a change that makes it shorter.
std::string next_change(const LayoutEstimate& e) {
  const bool each = e.layout.dp > 1 && e.copies_s > 0;
  const std::array<std::pair<double, const char*>, 5> parts = {{
      {e.bubble_s,
       "the bubble of the pipeline: more micro-batches a step (train.grad_accum), or fewer stages"},
      {e.layers_s, "collectives within layers: fewer ranks along tp or cp, or a faster network in the node"},
      {e.copies_s, each ? "gradients among copies: parallel.reduce=once, or larger steps (train.grad_accum)"
                        : "exchanges among copies: larger steps (train.grad_accum)"},
      {e.update_s, "the optimizer: more device memory, or 8-bit states (offload.states=int8)"},
      {e.link_s, "copies between tiers: more device memory, or larger micro-batches"},
  }};
  const auto& [seconds, what] = *std::max_element(
      parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  if (seconds <= 0) return "  by closed forms, a rank computes all the time\n";
  return fmt::format("  by closed forms, most is to be gained from {} ({:.1f} % of the step)\n", what,
                     100 * seconds / e.step_s);
}

}  // namespace

Result<FoundLayouts> find_layouts(const LoadedConfig& loaded, int ranks, const LoadWith& load,
                                  const MachineProfile& machine, bool other_machine) {
  STRATA_TRY_ASSIGN(const std::vector<LayoutEstimate> estimates,
                    mesh_layouts(loaded.config, machine, mesh_request(loaded, ranks)));
  FoundLayouts found{estimates.size(), dry_run_layouts(first_of_each_mesh(estimates), kTried, load, machine,
                                                       other_machine, loaded.config.cpu.share.threads())};
  const DryRunLayout& best = found.best();
  if (best.refused.is_ok()) return found;
  const Status why = explain_refusal(best.estimate.layout, load, machine, other_machine);
  return why.is_ok() ? best.refused : why;
}

std::string layouts_text(const FoundLayouts& found, const MachineProfile& machine, double tokens) {
  const int ranks = found.best().estimate.layout.ranks();
  std::string text = fmt::format(
      "layouts of {} ranks of {}: {} fit by closed forms, of which the best {} were run dry\n  {:<44} {:>10} "
      "{:>11} {:>10} {:>10} {:>6} {:>16}\n",
      ranks, machine.name, found.possible, found.tried.size(), "layout", "step", "tokens/s", "device",
      "pinned", "idle", "waits for ranks");
  for (const DryRunLayout& layout : found.tried) {
    const std::string name =
        to_string(layout.estimate.layout) + (layout.estimate.recomputes ? ", recomputes" : "");
    text += layout.refused.is_ok()
                ? fmt::format("  {:<44} {:>8.4g} s {:>11.5g} {:>10} {:>10} {:>4.0f} % {:>14.0f} %\n", name,
                              layout.step_s, tokens / layout.step_s, format_bytes(most(layout, Tier::device)),
                              format_bytes(most(layout, Tier::pinned)), 100 * layout.idle_share(),
                              100 * waits_share(layout))
                : fmt::format("  {:<44} refused: {}\n", name, layout.refused.message());
  }
  const DryRunLayout& best = found.best();
  if (best.peak.size() > 1) {
    text += fmt::format("stages of the first\n  {:<6} {:>10} {:>10} {:>10} {:>10} {:>16}\n", "stage",
                        "device", "pinned", "nvme", "computes", "waits for ranks");
    for (std::size_t i = 0; i < best.peak.size(); ++i)
      text += fmt::format("  {:<6} {:>10} {:>10} {:>10} {:>8.1f} % {:>14.1f} %\n", i,
                          format_bytes(best.peak[i][0]), format_bytes(best.peak[i][1]),
                          format_bytes(best.peak[i][2]), 100 * best.computes_s[i] / best.step_s,
                          100 * best.waits_s[i] / best.step_s);
  }
  return text + next_change(best.estimate) +
         fmt::format("  strata plan with {} prints its plan\n",
                     fmt::join(assignments(best.estimate.layout), " "));
}

std::string layouts_json(const FoundLayouts& found, const MachineProfile& machine, double tokens) {
  std::string rows;
  for (const DryRunLayout& layout : found.tried) {
    const MeshLayout& l = layout.estimate.layout;
    rows += fmt::format(
        "{}\n    {{\"layout\": {}, \"dp\": {}, \"pp\": {}, \"virtual_stages\": {}, \"tp\": {}, \"cp\": {}, "
        "\"zero\": {}, \"schedule\": {}, \"estimated_step_s\": {:.9g}",
        rows.empty() ? "" : ",", json_string(to_string(l)), l.dp, l.pp, l.virtual_stages, l.tp, l.cp, l.zero,
        json_string(l.schedule), layout.estimate.step_s);
    if (!layout.refused.is_ok()) {
      rows += fmt::format(", \"refused\": {}}}", json_string(layout.refused.message()));
      continue;
    }
    std::string stages;
    for (std::size_t i = 0; i < layout.peak.size(); ++i)
      stages += fmt::format(
          "{}{{\"planned_bytes\": {{\"device\": {}, \"pinned\": {}, \"nvme\": {}}}, \"compute_s\": {:.9g}, "
          "\"waits_for_ranks_s\": {:.9g}}}",
          stages.empty() ? "" : ", ", layout.peak[i][0], layout.peak[i][1], layout.peak[i][2],
          layout.computes_s[i], layout.waits_s[i]);
    rows += fmt::format(
        ", \"step_s\": {:.9g}, \"tokens_per_s\": {:.6g}, \"parameters\": {}, \"idle_share\": {:.4f}, "
        "\"stages\": [{}]}}",
        layout.step_s, tokens / layout.step_s, layout.param_elems, layout.idle_share(), stages);
  }
  return fmt::format(
      "{{\n  \"machine\": {},\n  \"ranks\": {},\n  \"possible\": {},\n  \"layouts\": [{}]\n}}\n",
      json_string(machine.name), found.best().estimate.layout.ranks(), found.possible, rows);
}

}  // namespace strata::cli
