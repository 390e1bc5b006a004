#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include <strata/infer/pair_figures.h>

namespace strata {

struct TrainConfig;

/// The report of one step.
struct StepProgress {
  std::int64_t step = 0;  ///< from 1
  std::int64_t steps = 0;
  double loss = 0;
  double tokens_per_s = 0;
  std::uint64_t device_bytes = 0, pinned_bytes = 0, nvme_bytes = 0;
  double elapsed_s = 0;
  double max_time_s = std::numeric_limits<double>::infinity();
  std::int64_t first_step = 0;  ///< steps done before `elapsed_s` began: those before the run was resumed
  /// Figures of the task beside the loss: for pairs their accuracy and margin, for sampled answers the
  /// reward, the divergence, the entropy and the length.
  std::array<NamedFigure, 4> of_task = {};
  std::size_t n_of_task = 0;
};

/// Observes a run, for example for a terminal, a log or a notebook. Nothing it does changes the
/// run. All calls come from the thread of run_training(), except warnings that other ranks are late,
/// which come from a thread of the transport as long as the world exists.
class Observer {
 public:
  virtual ~Observer() = default;

  /// The configuration is complete and training is about to begin.
  virtual void on_start(const TrainConfig& config) { static_cast<void>(config); }
  /// Called after every step. It must not allocate: the call is part of the allocation-free steady state.
  virtual void on_step(const StepProgress& step) noexcept { static_cast<void>(step); }
  /// One or more lines of text: the start table, a validation loss, a sample, a saved checkpoint. Without a
  /// trailing newline.
  virtual void on_message(std::string_view text) { static_cast<void>(text); }
  /// A problem that the user should know about; training continues.
  virtual void on_warning(std::string_view text) { static_cast<void>(text); }
};

}  // namespace strata
