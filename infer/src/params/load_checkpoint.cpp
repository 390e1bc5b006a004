#include <strata/infer/load_checkpoint.h>

#include <array>

#include <strata/config/objective.h>
#include <strata/config/reward_model.h>
#include <strata/infer/checkpoint_params.h>
#include <strata/parallel/agree.h>
#include <strata/runtime/str.h>

namespace strata {

Result<Manifest> load_run_checkpoint(Engine& engine, const TrainConfig& config, const std::string& checkpoint,
                                     Io& io) {
  FrozenSource frozen;
  const auto open = [&]() -> Status {
    STRATA_TRY_ASSIGN(const Manifest manifest, read_manifest(io, checkpoint));
    if (manifest.frozen.empty()) return {};
    STRATA_TRY_ASSIGN(frozen, open_frozen_source(engine, config, io));
    return {};
  };
  STRATA_TRY(agree(engine.world(), open()));
  constexpr std::array<std::string_view, 3> kOthers = {kReferencePrefix, kCriticPrefix, kRewardPrefix};
  return load_checkpoint(engine, io, checkpoint, frozen, kOthers);
}

Result<std::string> load_newest_checkpoint(Engine& engine, const TrainConfig& config,
                                           const std::vector<std::string>& checkpoints, Io& io,
                                           const std::function<void(std::string_view)>& warn,
                                           const std::function<Status(const std::string& checkpoint)>& also) {
  for (const std::string& checkpoint : checkpoints) {
    Status status = load_run_checkpoint(engine, config, checkpoint, io).status();
    if (status.is_ok() && also) status = agree(engine.world(), also(checkpoint));
    if (status.is_ok()) return checkpoint;
    if (status.code() != Code::corrupt || checkpoint == checkpoints.back()) return status;
    warn(str(status.message(), "\n  using the previous checkpoint"));
  }
  return Status::error(Code::not_found, "no checkpoint to load");
}

}  // namespace strata
