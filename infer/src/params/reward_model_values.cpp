#include <strata/config/reward_model.h>

#include <strata/model/hf/folder.h>
#include <strata/session/checkpoint.h>
#include <strata/runtime/str.h>
#include <strata/infer/reward_model_values.h>

namespace strata {
namespace {

class FolderValues final : public RewardModelValues {
 public:
  explicit FolderValues(std::unique_ptr<HfFolder> folder) : folder_(std::move(folder)) {}

 private:
  Result<bool> read_own(const StatePiece& piece, std::span<float> values) const override {
    if (!folder_->has_param(piece.name)) return false;
    STRATA_TRY(folder_->read_part(piece.name, piece.offset, values));
    return true;
  }
  const std::unique_ptr<HfFolder> folder_;
};

class CheckpointValues final : public RewardModelValues {
 public:
  explicit CheckpointValues(std::unique_ptr<CheckpointTensors> tensors) : tensors_(std::move(tensors)) {}

 private:
  Result<bool> read_own(const StatePiece& piece, std::span<float> values) const override {
    if (tensors_->file().find(std::string(piece.name)) == nullptr) return false;
    STRATA_TRY(tensors_->read_part(piece, values));
    return true;
  }
  const std::unique_ptr<CheckpointTensors> tensors_;
};

}  // namespace

Result<std::unique_ptr<RewardModelValues>> RewardModelValues::open(Io& io, const RewardModel& model) {
  using Values = std::unique_ptr<RewardModelValues>;
  if (!model.is_run) {
    STRATA_TRY_ASSIGN(auto folder, HfFolder::open(io, model.path));
    return Values(std::make_unique<FolderValues>(std::move(folder)));
  }
  STRATA_TRY_ASSIGN(const std::string checkpoint, newest_checkpoint(io, model.checkpoints));
  STRATA_TRY_ASSIGN(const Manifest manifest, read_manifest(io, checkpoint));
  STRATA_TRY(check_digests(io, checkpoint, manifest));
  STRATA_TRY_ASSIGN(auto tensors, CheckpointTensors::open(io, checkpoint, manifest, Payload::param));
  return Values(std::make_unique<CheckpointValues>(std::move(tensors)));
}

Result<bool> RewardModelValues::read(const StatePiece& piece, std::span<float> values) const {
  if (!piece.name.starts_with(kRewardPrefix)) return false;
  StatePiece own = piece;
  own.name.remove_prefix(kRewardPrefix.size());
  STRATA_TRY_ASSIGN(const bool is_there, read_own(own, values));
  if (is_there) return true;
  return Status::error(Code::not_found, str("the reward model has no parameter ", own.name));
}

}  // namespace strata
