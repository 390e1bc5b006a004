#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <strata/engine/engine.h>
#include <strata/text/dataset.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/signals.h>
#include <strata/batches/pair_batches.h>
#include <strata/batches/micro_batches.h>
#include <strata/infer/pair_figures.h>

namespace strata {

/// The loss of a model on text that it was not trained on.
struct EvaluationLoss {
  double nats = 0;      ///< mean per counted target
  TargetCount counted;  ///< the targets of the mean
  std::int64_t micro_batches = 0;
  PairFigures pairs;  ///< if the run has one rank and compares pairs
  double perplexity() const;
  /// Nothing if the counted targets correspond to no bytes of text.
  std::optional<double> bits_per_byte() const;
};

/// The bits of a double in hex, for bitwise comparison of runs.
std::string double_bits(double value);

/// Observes an evaluation and may stop it.
struct EvaluationObserver {
  const Signals* signals = nullptr;  ///< stop the evaluation early; may be null
  Clock* clock = nullptr;            ///< `on_progress` is called every 5 s of this clock
  std::function<void(std::int64_t done, std::int64_t n)> on_progress{};
};

/// Evaluates the first `n` micro-batches. Equal parameters, data and numbers return equal bits, in training
/// and in `strata eval`. Errors: `cancelled` if a signal stopped it.
Result<EvaluationLoss> evaluate_loss(Engine& engine, MicroBatches& data, std::int64_t n,
                                     const EvaluationObserver& observer = {});

}  // namespace strata
