#include "loop/hooks/saves.h"

#include <utility>

#include <strata/config/train_config.h>
#include <strata/config/run_checkpoints.h>
#include <strata/config/run_layout.h>
#include <strata/profile/compute_device.h>
#include <strata/runtime/str.h>
#include <strata/session/checkpoint.h>
#include <strata/train/resume.h>
#include <strata/train/run_identity.h>

namespace strata::detail {

Saves::Saves(RunLoop& loop, SubspaceRenewal& subspaces)
    : loop_(loop), subspaces_(subspaces), identity_(run_identity(loop.config(), loop.parts.data)) {}

void Saves::begin() {
  saved_step_ = loop_.engine->steps();
  saved_ns_ = loop_.begin_ns;
}

bool Saves::interval_ends(int steps) const noexcept {
  return loop_.seconds_since(saved_ns_) + steps * loop_.last_step_s > loop_.config().checkpoint.interval_s;
}

bool Saves::is_due(std::int64_t step) const noexcept {
  if (step >= loop_.config().train.steps) return false;
  if (is_due_after(step, loop_.config().checkpoint.every)) return true;
  return loop_.parts.world != nullptr ? loop_.decides(kSaveIsDue) : interval_ends(1);
}

Status Saves::after_step(MetricsLine& line) {
  if (loop_.stops() || !is_due(line.step)) return {};
  Status status = save();
  if (status.is_ok() || (status.code() != Code::no_space && status.code() != Code::io_error)) return status;
  STRATA_TRY(loop_.parts.folder.check_not_moved());
  loop_.parts.observer.on_message(str("WARNING: ", status.message(),
                                      "\n  training continues; the newest checkpoint is ",
                                      newest("", "the one from before this start, if any")));
  return {};
}

std::string Saves::newest(const char* prefix, const char* none) const {
  return path_.empty() ? none : prefix + path_;
}

Status Saves::save_changes() { return saved_step_ != loop_.engine->steps() ? save() : Status::ok(); }

Status Saves::save() {
  STRATA_TRY(loop_.parts.folder.check_not_moved());
  STRATA_TRY(save_in(loop_.parts.folder.path()));
  loop_.parts.observer.on_message(str("saved ", path_));
  return {};
}

Status Saves::save_in(const std::string& run) {
  const TrainConfig& config = loop_.config();
  Engine& engine = *loop_.engine;
  if (loop_.parts.world != nullptr) loop_.parts.world->progress().outside("saving a checkpoint");
  saved_ns_ = loop_.clock.now_ns();
  // Written before the checkpoint, since a run resumed from it needs the file.
  if (config.memory.backend == "cuda" && loop_.is_first_rank())
    STRATA_TRY(write_text_atomically(loop_.parts.io, str(run, "/", kGemmAlgorithmsFile),
                                     gemm_algorithms_text(gemm_implementation(
                                         "cuda", config.train.dtype, config.train.attention_backend))));
  std::map<std::string, std::string> state = subspaces_.schedule().state(engine.steps());
  state.merge(loop_.parts.task.manifest_state());
  state.insert(identity_.begin(), identity_.end());
  STRATA_TRY_ASSIGN(path_,
                    save_checkpoint(engine, loop_.parts.io, checkpoint_dir(config, run), std::move(state),
                                    config.checkpoint.keep, loop_.parts.task.state(engine.steps())));
  saved_step_ = engine.steps();
  return {};
}

Result<std::string> Saves::checkpoint() {
  if (path_.empty() || saved_step_ != loop_.engine->steps()) STRATA_TRY(save());
  return path_;
}

Status Saves::after_error(const Status& why) {
  World* const world = loop_.parts.world;
  RunFolder& folder = loop_.parts.folder;
  const std::int64_t steps = loop_.engine->steps();
  if (world != nullptr && why.code() != Code::lost_peer && why.code() != Code::diverged) world->give_up(why);
  if (saved_step_ == steps) return why;
  if (const Status whole = loop_.parts.task.check_is_whole(*loop_.engine); !whole.is_ok())
    return why.annotate(str(whole.message(), ", which is not saved; the newest checkpoint is ",
                            newest("", "the one from before this start, if any")));
  if (world != nullptr)  // the others may be anywhere, and saving needs all ranks
    return Status::error(
        why.code(), str(why.message(), "\n  step ", steps, " is not saved: ",
                        newest("the newest checkpoint is ", "there is no checkpoint of this start yet")));
  const Result<std::string> place = folder.check_not_moved().is_ok() ? folder.path() : folder.place();
  const std::string run = place.has_value() ? *place : folder.path();
  const Status saved = place.has_value() ? save_in(run) : place.status();
  if (saved.is_ok())
    return Status::error(why.code(), str(why.message(), "\n  step ", steps, " is saved in ", path_,
                                         "; continue with --resume ", run));
  return Status::error(why.code(),
                       str(why.message(), "\n  step ", steps, " could not be saved: ", saved.message()));
}

}  // namespace strata::detail
