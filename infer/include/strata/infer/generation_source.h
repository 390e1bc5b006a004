#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <strata/engine/engine.h>
#include <strata/model/decoder_config.h>
#include <strata/session/checkpoint.h>
#include <strata/text/chat.h>
#include <strata/text/tokenizer.h>
#include <strata/infer/row_adapters.h>
#include <strata/plan/job.h>
#include <strata/infer/pretrained_values.h>

namespace strata {

struct ConfigRequest;
struct LoadedConfig;

/// The model that generates or scores text: a run with a checkpoint, or a Hugging Face folder.
class GenerationSource {
 public:
  /// The first of `request.items` is the path of the run or folder; the others are key=value. The model
  /// computes in f32, or in train.dtype if that is one of the key=value. Named adapters are over the model as
  /// it is without them. Errors: `not_found`, `invalid`, those of reading its files and of
  /// RowAdapters::open(); `unsupported` for named adapters over a run of adapters.
  static Result<std::unique_ptr<GenerationSource>> open(const ConfigRequest& request,
                                                        const AdapterArguments& adapters, Io& io,
                                                        const CheckpointWarning& warn);
  ~GenerationSource();

  const Tokenizer& tokenizer() const noexcept { return *tokenizer_; }
  /// Positions that the model supports for the tokens of a sequence; 0: no limit.
  std::int64_t max_positions() const noexcept;
  std::int32_t vocab() const noexcept { return static_cast<std::int32_t>(decoder_.vocab); }
  /// The virtual tokens of the run's adapter, which a sequence begins with in the KV cache.
  std::int32_t virtual_tokens() const noexcept;
  /// Tokens that end a text.
  const std::vector<std::int32_t>& stop_ids() const noexcept { return tokenizer_->markers().ends; }
  /// The token before a text without context: BOS, else the one that ends a text; -1 if there is none.
  std::int32_t prefix_id() const noexcept { return tokenizer_->markers().before_nothing(); }
  /// The chat template. An error if it is unknown; it matters only if there is a conversation.
  const Result<ChatTemplate>& chat() const noexcept;
  /// Gives the template variables of a JSON object: ChatTemplate::with_arguments(). Errors: those of it and
  /// of chat().
  Status set_chat_arguments(const std::string& json);
  std::string chat_warning() const;
  /// The adapter of a text, as RowAdapters::choose(); -1 if there are none. Errors: `invalid` for a name that
  /// is not loaded.
  Result<std::int32_t> choose_adapter(const std::optional<std::string>& name) const;
  /// Null if texts cannot choose.
  const RowAdapters* adapters() const noexcept { return adapters_.get(); }
  DType dtype() const noexcept { return dtype_; }

  /// Creates an inference-only engine within the budgets of the configuration and loads the parameters. The
  /// cache has room for the virtual tokens besides decode.context, and for decode.snapshots if the run fits
  /// with them.
  /// Errors: `does_not_fit`, with the bytes of the KV cache; those of reading.
  /// `world`: of ranks that share the model, which all call this; each computes the same logits.
  /// `prefill_logits`: rows of logits of the program that prompts go through; 0: as many as of `decode`.
  Result<std::unique_ptr<Job>> start(const CacheShape& decode, std::int64_t prefill_rows,
                                     const std::function<void(std::string_view)>& warn,
                                     World* world = nullptr, std::int64_t prefill_logits = 0);
  /// Ranks that share the model, if the command line asks for them, else 1. Errors: `unsupported` for layouts
  /// that tokens one by one cannot have, and for adapters and quantized bases.
  Result<int> ranks() const;

 private:
  GenerationSource(Io& io, std::string path);
  Status open_run(const ConfigRequest& request, const CheckpointWarning& warn);
  Status open_folder(const ConfigRequest& request);
  Status open_adapters(const std::vector<NamedFolder>& folders, const std::string& default_adapter);
  Result<Program> record(const CacheShape& shape) const;
  Status share(ProgramSet& programs, const World& world);
  Status choose_cache(CacheShape& shape, bool is_shared, const std::function<void(std::string_view)>& warn);
  Status load_parameters(Engine& engine, const std::function<void(std::string_view)>& warn);
  Status load_run_under_adapters(Engine& engine, const std::function<void(std::string_view)>& warn);
  Status load_checkpoint_under_adapters(Engine& engine, const std::string& checkpoint);

  Io& io_;
  std::string path_;
  std::unique_ptr<LoadedConfig> loaded_;
  std::unique_ptr<PretrainedValues> values_;  // null: the source is a run
  std::vector<std::string> checkpoints_;
  std::unique_ptr<RowAdapters> adapters_;
  DType dtype_ = DType::f32;
  std::unique_ptr<Tokenizer> tokenizer_;
  DecoderConfig decoder_;
  std::unique_ptr<const RunPlan> plan_;
};

}  // namespace strata
