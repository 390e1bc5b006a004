#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <strata/engine/engine.h>
#include <strata/infer/batcher.h>
#include <strata/infer/generator.h>

#include "engine/tiny_run.h"
#include "support/numeric.h"

namespace strata::test {

/// A tiny model with programs that continue up to `sequences` sequences at a time. Its random weights are
/// large enough that every input changes the logits.
struct CachedModel {
  struct Shape {
    std::int64_t sequences = 1, prefill_rows = 8, context = 16;
    std::int64_t prefill_logits = 0;  ///< 0: as many as sequences
    std::int32_t snapshots = 0;       ///< each sequence has so many
  };
  CachedModel(const DecoderConfig& config, const Shape& shape)
      : run(must(Engine::plan(programs(config, shape), {}))) {
    must(run.engine->fill(Payload::param, [](const StatePiece& piece, std::span<float> values) {
      const auto random = Values(std::hash<std::string_view>()(piece.name))
                              .floats(static_cast<std::int64_t>(values.size()), 0.5);
      std::copy(random.begin(), random.end(), values.begin());
      return Status::ok();
    }));
  }
  static ProgramSet programs(const DecoderConfig& config, const Shape& shape) {
    const std::int64_t n = shape.sequences;
    ProgramSet set;
    set[ProgramRole::prefill] = must(record_cached_decoder(
        config, {shape.prefill_rows, n, shape.context, shape.prefill_logits > 0 ? shape.prefill_logits : n}));
    set[ProgramRole::decode] = must(record_cached_decoder(config, {n, n, shape.context, n}));
    set.set_snapshots(shape.snapshots);
    return set;
  }

  TinyRun run;
};

/// Keeps what becomes of a sequence.
class RecordingReceiver final : public SequenceReceiver {
 public:
  bool is_cancelled() const noexcept override { return cancelled; }
  void on_prompt_logits(std::size_t index, std::span<const float> logits) override {
    prompt_logits.emplace_back(index, std::vector<float>(logits.begin(), logits.end()));
  }
  Result<bool> on_token(std::int32_t id, std::span<const float> /*logits*/) override {
    ids.push_back(id);
    if (fails) return Status::error(Code::io_error, "nobody reads");
    return ids.size() != stop_after;
  }
  void on_end(const Result<FinishReason>& how) override {
    ++ends;
    status = how.status();
    if (how.has_value()) reason = *how;
  }

  std::vector<std::int32_t> ids;
  std::vector<std::pair<std::size_t, std::vector<float>>> prompt_logits;
  std::atomic<bool> cancelled = false;
  bool fails = false;
  std::size_t stop_after = 0;  ///< tokens; 0: none
  std::atomic<int> ends = 0;
  Status status;
  FinishReason reason = FinishReason::stopped;
};

}  // namespace strata::test
