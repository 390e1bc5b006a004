#include <strata/infer/evaluation.h>

#include <bit>
#include <cmath>
#include <numbers>

#include <fmt/format.h>

#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>
#include <strata/infer/pair_sums.h>
#include <strata/batches/micro_batches.h>

namespace strata {

double EvaluationLoss::perplexity() const { return std::exp(nats); }

std::optional<double> EvaluationLoss::bits_per_byte() const {
  if (counted.bytes == 0) return std::nullopt;
  return nats * static_cast<double>(counted.tokens) / std::numbers::ln2 / static_cast<double>(counted.bytes);
}

std::string double_bits(double value) { return fmt::format("{:016x}", std::bit_cast<std::uint64_t>(value)); }

namespace {

/// Micro-batches with progress reports; fails with `cancelled` once a stop is requested.
class ObservedBatches final : public BatchSource {
 public:
  ObservedBatches(MicroBatches& batches, std::int64_t n, const EvaluationObserver& observer)
      : batches_(batches), n_(n), observer_(observer), reported_ns_(now_ns()) {}

  Status fill(std::int64_t index, const BatchView& batch) override {
    constexpr std::int64_t kBetweenNs = 5'000'000'000;
    if (observer_.signals != nullptr && observer_.signals->stop_requested())
      return Status::error(Code::cancelled, str("stopped after ", index, " of ", plural(n_, "micro-batch")));
    if (observer_.on_progress && now_ns() - reported_ns_ > kBetweenNs) {
      observer_.on_progress(index, n_);
      reported_ns_ = now_ns();
    }
    return batches_.fill(index, batch);
  }
  std::int64_t n_counted(std::int64_t index, std::int64_t n) override { return batches_.n_counted(index, n); }

 private:
  std::int64_t now_ns() const { return observer_.clock == nullptr ? 0 : observer_.clock->now_ns(); }
  MicroBatches& batches_;
  const std::int64_t n_;
  const EvaluationObserver& observer_;
  std::int64_t reported_ns_;
};

}  // namespace

Result<EvaluationLoss> evaluate_loss(Engine& engine, MicroBatches& data, std::int64_t n,
                                     const EvaluationObserver& observer) {
  ObservedBatches batches(data, n, observer);
  EvaluationLoss loss;
  PairSums sums;
  STRATA_TRY_ASSIGN(loss.nats, engine.evaluate(batches, n, {}, [&](std::int64_t) {
    sums.add(engine.output("eval", "stats"));
  }));
  if (engine.world() == nullptr) loss.pairs = sums.figures();
  loss.counted = data.counted(0, n);
  loss.micro_batches = n;
  return loss;
}

}  // namespace strata
