#include <strata/train/subspaces/schedule.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>
#include <strata/plan/subspaces.h>
#include <strata/config/train_config.h>
#include <strata/config/model_choice.h>

namespace strata {
namespace {

constexpr const char* kRenewedFor = "galore.renewed_after";

}  // namespace

SubspaceSchedule::SubspaceSchedule(const TrainConfig& config)
    : groups_(must(subspace_groups(config, decoder_config(config)))), gap_(config.optim.galore_gap) {}

Result<SubspaceSchedule::Renewal> SubspaceSchedule::before_step(Engine& engine, BatchSource& source) {
  Renewal renewal;
  if (!is_due(engine.steps())) return renewal;
  STRATA_TRY_ASSIGN(const std::vector<Engine::RenewedBasis> bases, engine.renew_bases(source, groups_));
  renewed_ = engine.steps();
  std::vector<std::string> kept;
  double n = 0, sum = 0;
  for (const Engine::RenewedBasis& basis : bases) {
    if (basis.kept) kept.push_back(basis.name);
    for (const float energy : basis.energy) {
      sum += static_cast<double>(energy);
      ++n;
    }
  }
  renewal.energy = sum / n;
  if (!kept.empty())
    renewal.note =
        str("the gradients of ", plural(kept.size(), "subspace"),
            " are not finite, so they stay as they were: ", fmt::format("{}", fmt::join(kept, ", ")));
  return renewal;
}

std::map<std::string, std::string> SubspaceSchedule::state(std::int64_t steps) const {
  if (renewed_ != steps) return {};
  return {{kRenewedFor, str(steps)}};
}

void SubspaceSchedule::resume(std::int64_t steps, const std::map<std::string, std::string>& run) {
  const auto found = run.find(kRenewedFor);
  renewed_ = found != run.end() && found->second == str(steps) ? steps : -1;
}

}  // namespace strata
