#include <strata/train/generate/generation_source.h>

#include <algorithm>

#include <strata/model/hf/explain_folder.h>
#include <strata/model/tokenizer_config.h>
#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>
#include <strata/train/resume.h>
#include <strata/train/run_folder.h>
#include <strata/train/training_data.h>

namespace strata {
namespace {

void add_stop_id(std::int32_t id, std::vector<std::int32_t>& stop_ids) {
  if (id >= 0 && std::find(stop_ids.begin(), stop_ids.end(), id) == stop_ids.end()) stop_ids.push_back(id);
}

// The dtype that a run was trained in is ignored; one that is requested now is refused, not ignored.
Status check_dtype(const LoadedConfig& loaded) {
  const std::string &origin = loaded.tree.entry("train.dtype").origin, &dtype = loaded.config.train.dtype;
  if (dtype == "f32" || dtype == "auto" || !origin.starts_with("argument ")) return {};
  return Status::error(Code::unsupported, str(origin, ": text is generated in f32 only"));
}

}  // namespace

Result<std::unique_ptr<GenerationSource>> GenerationSource::open(const ConfigRequest& request, Io& io,
                                                                 const CheckpointWarning& warn) {
  std::unique_ptr<GenerationSource> source(new GenerationSource(io, request.items.front()));
  const bool folder = io.exists(source->path_ + "/config.json");
  STRATA_TRY(folder ? source->open_folder(request) : source->open_run(request, warn));
  STRATA_TRY(check_dtype(*source->loaded_));
  // Text is generated in f32, so neither FP8 GEMMs nor 16-bit attention backends apply.
  source->loaded_->config.train.fp8 = false;
  source->loaded_->config.train.attention_backend = "mma";
  return source;
}

Status GenerationSource::open_run(const ConfigRequest& request, const CheckpointWarning& warn) {
  STRATA_TRY(explain_hf_folder(io_, path_));
  STRATA_TRY(RunFolder::check(io_, path_, RunFolder::Mode::resume));
  ConfigRequest given = request;
  given.items.front() = str(path_, "/", kResolvedConfig);
  STRATA_TRY_ASSIGN(LoadedConfig loaded, load_config(given));
  loaded_ = std::make_unique<LoadedConfig>(std::move(loaded));
  STRATA_TRY_ASSIGN(Tokenizer tokenizer, Tokenizer::load(io_, path_ + "/tokenizer.json"));
  tokenizer_ = std::make_unique<Tokenizer>(std::move(tokenizer));
  STRATA_TRY_ASSIGN(checkpoints_, list_checkpoints(loaded_->config, path_, io_, warn));
  if (checkpoints_.empty()) return no_checkpoint(loaded_->config, path_);
  decoder_ = with_derived_sizes(decoder_config(loaded_->config));
  add_stop_id(tokenizer_->end_of_text(), stop_ids_);
  prefix_id_ = tokenizer_->end_of_text();
  return Status::ok();
}

Status GenerationSource::open_folder(const ConfigRequest& request) {
  ConfigRequest given = request;
  given.items.front() = "model.from=" + path_;
  STRATA_TRY_ASSIGN(LoadedConfig loaded, load_config(given));
  loaded_ = std::make_unique<LoadedConfig>(std::move(loaded));
  STRATA_TRY_ASSIGN(Tokenizer tokenizer, Tokenizer::load(io_, path_));
  tokenizer_ = std::make_unique<Tokenizer>(std::move(tokenizer));
  STRATA_TRY_ASSIGN(values_, PretrainedValues::open(io_, loaded_->config));
  decoder_ = values_->folder()->config();
  STRATA_TRY_ASSIGN(const TokenizerConfig words, load_tokenizer_config(io_, path_));
  STRATA_TRY_ASSIGN(GenerationConfig generation, load_generation_config(io_, path_));
  if (generation.eos.empty()) {
    auto parsed =
        parse_generation_config(values_->folder()->config_text());  // older folders have them in config.json
    if (!parsed.has_value()) return parsed.status().annotate(path_ + "/config.json");
    generation = *std::move(parsed);
  }
  for (const std::int32_t id : generation.eos) add_stop_id(id, stop_ids_);
  add_stop_id(tokenizer_->added_id(words.eos_token), stop_ids_);
  if (stop_ids_.empty()) add_stop_id(tokenizer_->end_of_text(), stop_ids_);
  // In the order of transformers and lm_eval: BOS of the tokenizer, or else its EOS.
  for (const std::int32_t id : {tokenizer_->added_id(words.bos_token), tokenizer_->added_id(words.eos_token),
                                generation.bos.value_or(-1), tokenizer_->end_of_text()})
    if (prefix_id_ < 0) prefix_id_ = id;
  return Status::ok();
}

std::int64_t GenerationSource::max_positions() const noexcept {
  return decoder_.positions == 0 ? 0 : std::max<std::int64_t>(1, decoder_.positions - virtual_tokens());
}

std::int32_t GenerationSource::virtual_tokens() const noexcept {
  return static_cast<std::int32_t>(strata::virtual_tokens(loaded_->config));
}

Result<std::unique_ptr<Job>> GenerationSource::start(const CacheShape& shape, std::int64_t prefill_rows,
                                                     const std::function<void(std::string_view)>& warn) {
  ProgramSet programs;
  CacheShape decode = shape, prefill;
  decode.context += virtual_tokens();
  prefill = decode;
  prefill.rows = prefill_rows;
  for (const auto& [role, sizes] :
       {std::pair{ProgramRole::prefill, prefill}, {ProgramRole::decode, decode}}) {
    STRATA_TRY_ASSIGN(Program program, record_cached_decoder(decoder_, sizes));
    STRATA_TRY_ASSIGN(program, with_adapters(std::move(program), loaded_->config, decoder_));
    programs[role] = specialize_for_backend(std::move(program), loaded_->config);
  }
  auto plan = plan_programs(*loaded_, programs);
  if (!plan.has_value() && plan.status().code() == Code::does_not_fit)
    return plan.status().annotate(str("the keys and values of ", plural(decode.sequences, "sequence"), " of ",
                                      decode.context, " tokens need ",
                                      format_bytes(cache_bytes(decoder_, decode)), " of the device"));
  if (!plan.has_value()) return plan.status();
  plan_ = *std::move(plan);
  STRATA_TRY_ASSIGN(std::unique_ptr<Job> job, Job::start(loaded_->config, *plan_, io_));
  STRATA_TRY(load_parameters(job->engine(), warn));
  return job;
}

Status GenerationSource::load_parameters(Engine& engine, const std::function<void(std::string_view)>& warn) {
  if (!values_) return load_newest_checkpoint(engine, loaded_->config, checkpoints_, io_, warn).status();
  return values_->initialize(engine, loaded_->config.train.seed);
}

}  // namespace strata
