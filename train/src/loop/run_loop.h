#pragma once

#include <cstdint>

#include <strata/batches/training_data.h>
#include <strata/engine/engine.h>
#include <strata/parallel/world.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/signals.h>
#include <strata/runtime/trace/trace.h>
#include <strata/train/observer.h>
#include <strata/train/run_folder.h>
#include <strata/train/run_task.h>

namespace strata {

struct TrainConfig;

/// The objects that a trainer works with; all of them outlive the trainer.
struct TrainerParts {
  const TrainConfig& config;
  const TrainingData& data;
  RunTask& task;
  RunFolder& folder;
  Observer& observer;
  Signals& signals;
  Io& io;
  Trace* trace = nullptr;  ///< null: none is recorded
  World* world = nullptr;  ///< null if there is one rank
};

namespace detail {

/// What a rank asks for before a step; every rank acts on what any of them said with the last step.
enum Decision : std::uint32_t { kStop = 1, kTimeIsUp = 2, kSaveIsDue = 4, kWritesAreUsedUp = 8 };

/// What the training loop and the work beside its steps share.
struct RunLoop {
  const TrainerParts parts;
  Engine* engine;  ///< runs the present plan
  SteadyClock clock{};
  std::uint32_t agreed = 0;   ///< decisions of all ranks
  std::int64_t begin_ns = 0;  ///< when the run began in this process
  double last_step_s = 0;

  const TrainConfig& config() const noexcept { return parts.config; }
  bool is_first_rank() const noexcept { return parts.world == nullptr || parts.world->rank() == 0; }
  bool decides(Decision decision) const noexcept { return (agreed & decision) != 0; }
  /// Whether a signal asked this rank or, with several, any of them to stop.
  bool stops() const noexcept {
    return parts.world == nullptr ? parts.signals.stop_requested() : decides(kStop);
  }
  /// The signals that may cut something short; null with several ranks, since each needs the others.
  Signals* interrupts() const noexcept { return parts.world == nullptr ? &parts.signals : nullptr; }
  double seconds_since(std::int64_t then_ns) const noexcept {
    return static_cast<double>(clock.now_ns() - then_ns) * 1e-9;
  }
};

}  // namespace detail
}  // namespace strata
