#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <strata/model/hf/folder.h>
#include <strata/model/tokenizer.h>

#include "args.h"
#include "load_config.h"
#include "training/job.h"

namespace strata::cli {

/// What generates: a run with a checkpoint, or a Hugging Face folder.
class GenerationSource {
 public:
  /// The first of `args.items` names it; the others are key=value. Errors: `not_found`, `invalid`, those of
  /// its files.
  static Result<std::unique_ptr<GenerationSource>> open(const Args& args, Io& io);

  const Tokenizer& tokenizer() const noexcept { return *tokenizer_; }
  /// Places that the model knows; 0: no limit.
  std::int64_t max_positions() const noexcept;
  std::int32_t vocab() const noexcept { return static_cast<std::int32_t>(decoder_.vocab); }
  /// Tokens that end a text.
  const std::vector<std::int32_t>& stop_ids() const noexcept { return stop_ids_; }
  /// How conversations are written; an error where that is not known, of no concern without one.
  const Result<ChatTemplate>& chat() const noexcept { return loaded_->config.data.chosen_chat.chat; }
  std::string chat_warning() const { return loaded_->config.data.chosen_chat.warning(); }
  /// What goes around a text: the folder's own BOS; a run was trained without.
  AddSpecialTokens add_special() const noexcept {
    return folder_ ? AddSpecialTokens::yes : AddSpecialTokens::no;
  }

  /// An engine that only infers, within the budgets of the configuration, with the parameters in it. Errors:
  /// `does_not_fit` with the cache's share; those of reading.
  Result<std::unique_ptr<Job>> start(const CacheShape& decode, std::int64_t prefill_rows,
                                     const std::function<void(std::string_view)>& warn);

 private:
  GenerationSource(Io& io, std::string path) : io_(io), path_(std::move(path)) {}
  Status open_run(const Args& args);
  Status open_folder(const Args& args);
  Status load_parameters(Engine& engine, const std::function<void(std::string_view)>& warn);

  Io& io_;
  std::string path_;
  std::unique_ptr<LoadedConfig> loaded_;
  std::unique_ptr<HfFolder> folder_;  // or null: a run
  std::vector<std::string> checkpoints_;
  std::unique_ptr<Tokenizer> tokenizer_;
  DecoderConfig decoder_;
  std::vector<std::int32_t> stop_ids_;
  std::unique_ptr<const RunPlan> plan_;
};

}  // namespace strata::cli
