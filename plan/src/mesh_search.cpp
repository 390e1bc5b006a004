#include <strata/plan/split/mesh_search.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include <strata/config/load_config.h>

namespace strata {

DryRunLayout dry_run_layout(const LayoutEstimate& estimate, const LoadWith& load,
                            const MachineProfile& machine, bool other_machine, Trace* trace) {
  const auto run = [&]() -> Result<StagesDryRun> {
    STRATA_TRY_ASSIGN(const LoadedConfig whole, load(assignments(estimate.layout)));
    return dry_run_stages(whole, machine, other_machine, trace);
  };
  auto found = run();
  DryRunLayout layout;
  layout.estimate = estimate;
  if (found.has_value())
    static_cast<StagesDryRun&>(layout) = *std::move(found);
  else
    layout.refused = found.status();
  return layout;
}

Status explain_refusal(const MeshLayout& layout, const LoadWith& load, const MachineProfile& machine,
                       bool other_machine) {
  STRATA_TRY_ASSIGN(const LoadedConfig whole, load(assignments(layout)));
  return strata::explain_refusal(whole, machine, other_machine).annotate(to_string(layout));
}

std::vector<DryRunLayout> dry_run_layouts(const std::vector<LayoutEstimate>& estimates, std::size_t n,
                                          const LoadWith& load, const MachineProfile& machine,
                                          bool other_machine, int threads) {
  std::vector<DryRunLayout> found(std::min(n, estimates.size()));
  std::atomic<std::size_t> next = 0;
  const auto run = [&] {
    for (std::size_t i = next++; i < found.size(); i = next++)
      found[i] = dry_run_layout(estimates[i], load, machine, other_machine);
  };
  {
    std::vector<std::jthread> others;
    const auto wanted = std::min(static_cast<std::size_t>(std::max(threads, 1)), found.size());
    for (std::size_t i = 1; i < wanted; ++i) others.emplace_back(run);
    run();
  }
  std::stable_sort(found.begin(), found.end(), [](const DryRunLayout& a, const DryRunLayout& b) {
    return a.refused.is_ok() != b.refused.is_ok() ? a.refused.is_ok() : a.step_s < b.step_s;
  });
  return found;
}

MeshRequest mesh_request(const LoadedConfig& loaded, int ranks) {
  const TrainConfig::Parallel& parallel = loaded.config.parallel;
  const auto is_set = [&](const char* key) { return loaded.tree.entry(key).origin != "default"; };
  MeshRequest request{.ranks = ranks};
  if (is_set("parallel.pp")) request.pp = parallel.pp;
  if (is_set("parallel.tp")) request.tp = parallel.tp;
  if (is_set("parallel.cp")) request.cp = parallel.cp;
  if (is_set("parallel.zero")) request.zero = parallel.zero;
  if (is_set("parallel.schedule") && parallel.schedule != "auto") request.schedule = parallel.schedule;
  if (is_set("parallel.virtual_stages")) request.virtual_stages = parallel.virtual_stages;
  return request;
}

}  // namespace strata
