#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <strata/engine/engine.h>
#include <strata/model/dataset.h>
#include <strata/runtime/clock.h>
#include <strata/runtime/signals.h>

namespace strata::cli {

/// What a model makes of text it has not seen.
struct EvaluationLoss {
  double nats = 0;      ///< a counted target, in the mean
  TargetCount counted;  ///< what the mean is over
  std::int64_t micro_batches = 0;
  double perplexity() const;
  /// None where what is counted stands for no text.
  std::optional<double> bits_per_byte() const;
};

/// The bits of a double in hex: what two runs that agree agree in.
std::string double_bits(double value);

/// Micro-batches of `sequences` that `data` fills, what is left over not counted.
std::int64_t n_micro_batches(const Dataset& data, std::int64_t sequences);

/// Who looks on while a loss is measured.
struct EvaluationObserver {
  const Signals* signals = nullptr;  ///< what may cut it short; null: nothing
  Clock* clock = nullptr;            ///< by which `on_progress` is called every few seconds
  std::function<void(std::int64_t done, std::int64_t n)> on_progress{};
};

/// Over the first `n` of them. The same parameters, data and numbers give the same bits, whoever asks.
/// Errors: `cancelled` where a signal cut it short.
Result<EvaluationLoss> evaluate_loss(Engine& engine, const Dataset& data, std::int64_t sequences,
                                     std::int64_t n, const EvaluationObserver& observer = {});

}  // namespace strata::cli
