// When a run is saved, and how.
#include <strata/config/train_config.h>
#include <strata/profile/compute_device.h>
#include <strata/runtime/str.h>
#include <strata/session/checkpoint.h>
#include <strata/train/resume.h>
#include <strata/train/trainer.h>
#include <strata/config/run_checkpoints.h>
#include <strata/config/run_layout.h>

namespace strata {

// A save is due with checkpoint.interval if the next step, which takes about as long as the last one, would
// end after the interval.
bool Trainer::is_save_due(std::int64_t step) const {
  if (step >= config_.train.steps) return false;
  if (config_.checkpoint.every > 0 && step % config_.checkpoint.every == 0) return true;
  if (world_ != nullptr) return decides(kSaveIsDue);
  const double since_s = static_cast<double>(clock_.now_ns() - saved_ns_) * 1e-9;
  return since_s + last_step_s_ > config_.checkpoint.interval_s;
}

// A full disk costs one save, not the run: the next save is tried when it is due.
Status Trainer::save_periodic_checkpoint() {
  Status status = save();
  if (status.is_ok() || (status.code() != Code::no_space && status.code() != Code::io_error)) return status;
  STRATA_TRY(folder_.check_not_moved());
  observer_.on_message(
      str("WARNING: ", status.message(), "\n  training continues; the newest checkpoint is ",
          checkpoint_path_.empty() ? "the one from before this start, if any" : checkpoint_path_));
  return {};
}

Status Trainer::save() {
  STRATA_TRY(folder_.check_not_moved());
  STRATA_TRY(save_in(folder_.path()));
  observer_.on_message(str("saved ", checkpoint_path_));
  return Status::ok();
}

Status Trainer::save_in(const std::string& run) {
  if (world_ != nullptr) world_->progress().outside("saving a checkpoint");
  saved_ns_ = clock_.now_ns();
  // Written before the checkpoint, since a run resumed from it needs the file.
  if (config_.memory.backend == "cuda" && (world_ == nullptr || world_->rank() == 0))
    STRATA_TRY(write_text_atomically(io_, str(run, "/", kGemmAlgorithmsFile),
                                     gemm_algorithms_text(gemm_implementation(
                                         "cuda", config_.train.dtype, config_.train.attention_backend))));
  std::map<std::string, std::string> state = subspaces_.state(engine_->steps());
  state.merge(task_.manifest_state());
  state.insert(identity_.begin(), identity_.end());
  STRATA_TRY_ASSIGN(checkpoint_path_,
                    save_checkpoint(*engine_, io_, checkpoint_dir(config_, run), std::move(state),
                                    config_.checkpoint.keep, task_.state(engine_->steps())));
  saved_step_ = engine_->steps();
  return Status::ok();
}

Result<std::string> Trainer::ensure_saved() {
  if (checkpoint_path_.empty() || saved_step_ != engine_->steps()) STRATA_TRY(save());
  return checkpoint_path_;
}

Result<std::string> Trainer::save_for_restart() {
  STRATA_TRY_ASSIGN(const std::string where, ensure_saved());
  add_totals();
  return where;
}

// Returns the error that ended training, with what happened to the training states. Saving fails if the
// states are inconsistent, since the engine then refuses to read them.
Status Trainer::save_after_error(const Status& why) {
  if (world_ != nullptr && why.code() != Code::lost_peer && why.code() != Code::diverged)
    world_->give_up(why);
  if (saved_step_ == engine_->steps()) return why;
  if (const Status whole = task_.check_is_whole(*engine_); !whole.is_ok())
    return why.annotate(
        str(whole.message(), ", which is not saved; the newest checkpoint is ",
            checkpoint_path_.empty() ? "the one from before this start, if any" : checkpoint_path_));
  if (world_ != nullptr)  // the others may be anywhere, and saving needs all ranks
    return Status::error(why.code(),
                         str(why.message(), "\n  step ", engine_->steps(), " is not saved: ",
                             checkpoint_path_.empty() ? "there is no checkpoint of this start yet"
                                                      : "the newest checkpoint is " + checkpoint_path_));
  const Result<std::string> place = folder_.check_not_moved().is_ok() ? folder_.path() : folder_.place();
  const std::string run = place.has_value() ? *place : folder_.path();
  const Status saved = place.has_value() ? save_in(run) : place.status();
  if (saved.is_ok())
    return Status::error(why.code(), str(why.message(), "\n  step ", engine_->steps(), " is saved in ",
                                         checkpoint_path_, "; continue with --resume ", run));
  return Status::error(why.code(), str(why.message(), "\n  step ", engine_->steps(),
                                       " could not be saved: ", saved.message()));
}

}  // namespace strata
