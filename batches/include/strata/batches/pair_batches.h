#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <strata/engine/engine.h>
#include <strata/text/pair_dataset.h>
#include <strata/runtime/io/io.h>
#include <strata/batches/micro_batches.h>

namespace strata {

/// The micro-batches of pairs. The loss counts pairs. Copies share what they hold.
class PairBatches final : public MicroBatches {
 public:
  explicit PairBatches(PairDataset data) : data_(std::move(data)) {}

  const PairDataset& data() const noexcept { return data_; }
  Status fill(std::int64_t index, const BatchView& batch) override;
  std::int64_t n_batches() const override;
  TargetCount counted(std::int64_t index, std::int64_t n) const override;

  /// Sets the scores that the reference gives the two documents of each pair of the cache
  /// (record_pair_scores), one pair after the other. fill() needs them for programs with an input
  /// "reference".
  void set_reference(std::vector<float> scores) {
    reference_ = std::make_shared<const std::vector<float>>(std::move(scores));
  }
  /// Null if there is none.
  const std::vector<float>* reference() const noexcept { return reference_.get(); }

 private:
  PairDataset data_;
  std::shared_ptr<const std::vector<float>> reference_;  // shared by all copies
};

/// Computes the reference's scores of all pairs with the engine's present parameters, by kReferenceProgram.
/// `on_progress` is told how many of how many micro-batches are done. Errors: those of Engine::forward();
/// `diverged` if a score is not finite.
Status compute_reference(Engine& engine, PairBatches& pairs,
                         const std::function<void(std::int64_t, std::int64_t)>& on_progress);

/// The scores in a file with a digest, which runs kept before their checkpoints had them. Errors:
/// `not_found`; `corrupt`; `invalid` for another number of scores.
Result<std::vector<float>> read_reference(Io& io, const std::string& path, std::size_t n);

}  // namespace strata
