#pragma once

#include <memory>
#include <span>
#include <vector>

#include <strata/engine/engine.h>
#include <strata/model/adapter/peft_folder.h>
#include <strata/model/hf/folder.h>
#include <strata/session/state_piece.h>
#include <strata/infer/reward_model_values.h>

namespace strata {

struct TrainConfig;

/// The values that a model starts from: of the folder model.from, and of the adapter adapter.from or of the
/// text adapter.prompt_text. Also those of a reward model that the run uses.
class PretrainedValues {
 public:
  /// Errors: those of HfFolder::open(), PeftFolder::open() and Tokenizer::load(); `invalid` if the adapter's
  /// modules, ranks or scales are not those of section `adapter`.
  static Result<std::unique_ptr<PretrainedValues>> open(Io& io, const TrainConfig& config);

  /// Null if model.from is empty.
  const HfFolder* folder() const noexcept { return folder_.get(); }
  /// Reads the values of a piece and returns true, or returns false if neither has the parameter: one that
  /// starts as Engine::initialize() draws it.
  Result<bool> read(const StatePiece& piece, std::span<float> values) const;
  /// Whether a run can train over these values: a run has its base in the folder. Errors: `unsupported` if
  /// the adapter's folder has a table of the base with other values than model.from; those of reading.
  Status check_base() const;
  /// The same for a quantized matrix that the folder has in this format, as QuantizedValues.
  Result<bool> read_quantized(const StatePiece& piece, const kernels::QuantizedMatrix& matrix,
                              std::span<std::byte> bytes) const;
  /// Initializes the engine with the values of `first` if it has them, else with these or draws.
  Status initialize(Engine& engine, std::uint64_t seed, const InitialValues& first = {}) const;

 private:
  PretrainedValues() = default;
  Status open_prompt(Io& io, const TrainConfig& config);
  Status read_prompt(std::int64_t offset, std::span<float> values) const;
  std::unique_ptr<HfFolder> folder_;
  std::unique_ptr<PeftFolder> adapter_;
  std::unique_ptr<RewardModelValues> reward_;  // null if there is no reward model
  std::vector<std::int32_t> prompt_;           // a token for each virtual one; empty if there is no text
};

}  // namespace strata
