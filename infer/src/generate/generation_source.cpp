#include <strata/model/hf/model_files.h>
#include <strata/config/objective.h>
#include <strata/infer/generation_source.h>

#include <algorithm>
#include <array>
#include <ctime>

#include <strata/model/adapter/peft_folder.h>
#include <strata/model/adapter/weight_parts.h>
#include <strata/model/decoder.h>
#include <strata/model/hf/explain_folder.h>
#include <strata/model/hf/other_parts.h>
#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>
#include <strata/infer/checkpoint_params.h>
#include <strata/plan/latent_cache.h>
#include <strata/plan/split/split_model.h>
#include <strata/plan/subspaces.h>
#include <strata/config/load_config.h>
#include <strata/config/model_choice.h>
#include <strata/plan/record_programs.h>
#include <strata/config/run_checkpoints.h>
#include <strata/infer/load_checkpoint.h>
#include <strata/config/run_layout.h>

namespace strata {
namespace {

// The dtype that a run was trained in does not matter; one that is requested now does.
std::string requested_dtype(const LoadedConfig& loaded) {
  const std::string &origin = loaded.tree.entry("train.dtype").origin, &dtype = loaded.config.train.dtype;
  return origin.starts_with("argument ") && dtype != "auto" ? dtype : "f32";
}

// The day that strftime_now() of a chat template writes for a question, as in transformers.
std::tm today() {
  const std::time_t now = std::time(nullptr);
  std::tm day{};
  localtime_r(&now, &day);
  return day;
}

// The model is as it is loaded: nothing is trained, so it needs no masters. Neither FP8 GEMMs nor the
// backends of attention over whole sequences apply.
void set_for_inference(TrainConfig& config) {
  config.train.fp8 = false;
  config.train.attention_backend = "mma";
  config.train.frozen_masters = false;
}

}  // namespace

Result<std::unique_ptr<GenerationSource>> GenerationSource::open(const ConfigRequest& request,
                                                                 const AdapterArguments& adapters, Io& io,
                                                                 const CheckpointWarning& warn) {
  STRATA_TRY_ASSIGN(const AdapterFolders folders, adapter_folders(adapters.adapters, io));
  if (!adapters.default_adapter.empty() && folders.named.empty())
    return Status::error(Code::invalid,
                         str("--default-adapter ", adapters.default_adapter,
                             ": there are no named adapters; load them with --adapter NAME=DIR"));
  ConfigRequest given = request;
  given.adapter = folders.only;
  given.use = folders.named.empty() ? ModelUse::inference : ModelUse::base_of_adapters;
  std::unique_ptr<GenerationSource> source(new GenerationSource(io, request.items.front()));
  const bool folder = model_file_exists(io, source->path_ + "/config.json");
  if (folder && is_run_folder(io, source->path_))
    warn(str(source->path_, " is a Hugging Face folder and a run; the folder's model is read"));
  STRATA_TRY(folder ? source->open_folder(given) : source->open_run(given, warn));
  TrainConfig& config = source->loaded_->config;
  config.train.dtype = requested_dtype(*source->loaded_);
  if (Result<ChatTemplate>& chat = config.data.chosen_chat.chat; chat.has_value())
    chat = chat->with_date(today());
  if (const std::string note = source->tokenizer_->note(); !note.empty()) warn(note);
  if (const std::string note = left_alone_note(io, config.model.from); !note.empty()) warn(note);
  source->dtype_ = compute_dtype(config);
  set_for_inference(config);
  if (!folders.named.empty()) STRATA_TRY(source->open_adapters(folders.named, adapters.default_adapter));
  return source;
}

Status GenerationSource::open_adapters(const std::vector<NamedFolder>& folders,
                                       const std::string& default_adapter) {
  if (trained_part(loaded_->config) == TrainedPart::adapters)
    return Status::error(
        Code::unsupported,
        str(path_, values_ ? " is read with adapter.from" : " is a run of adapters",
            "; named adapters need a model without any: name its base, and load all adapters with --adapter "
            "NAME=DIR"));
  STRATA_TRY_ASSIGN(adapters_, RowAdapters::open(io_, folders, default_adapter, decoder_));
  return {};
}

GenerationSource::GenerationSource(Io& io, std::string path) : io_(io), path_(std::move(path)) {}
GenerationSource::~GenerationSource() = default;

const Result<ChatTemplate>& GenerationSource::chat() const noexcept {
  return loaded_->config.data.chosen_chat.chat;
}

std::string GenerationSource::chat_warning() const { return loaded_->config.data.chosen_chat.warning(); }

Status GenerationSource::set_chat_arguments(const std::string& json) {
  STRATA_TRY(chat().status());
  STRATA_TRY_ASSIGN(ChatTemplate chat, chat()->with_arguments(json));
  loaded_->config.data.chosen_chat.chat = std::move(chat);
  return {};
}

Result<std::int32_t> GenerationSource::choose_adapter(const std::optional<std::string>& name) const {
  if (adapters_) return adapters_->choose(name);
  if (!name || name->empty()) return -1;
  return Status::error(Code::invalid,
                       str("no adapter is named '", *name, "'; load it with --adapter ", *name, "=DIR"));
}

Status GenerationSource::open_run(const ConfigRequest& request, const CheckpointWarning& warn) {
  STRATA_TRY(explain_hf_folder(io_, path_));
  STRATA_TRY(check_is_run(io_, path_));
  ConfigRequest given = request;
  given.items.front() = str(path_, "/", kResolvedConfig);
  STRATA_TRY_ASSIGN(LoadedConfig loaded, load_config(given));
  loaded_ = std::make_unique<LoadedConfig>(std::move(loaded));
  if (const TrainConfig& config = loaded_->config;
      base_format(config) != kernels::WeightFormat::full && trained_part(config) != TrainedPart::adapters)
    return Status::error(Code::unsupported, str(loaded_->tree.entry("train.base").origin,
                                                ": train.base = ", config.train.base, ", but ", path_,
                                                " is a run, whose checkpoints have whole values; export it, "
                                                "and name the Hugging Face folder"));
  STRATA_TRY_ASSIGN(Tokenizer tokenizer, Tokenizer::load(io_, path_ + "/tokenizer.json"));
  tokenizer_ = std::make_unique<Tokenizer>(std::move(tokenizer));
  STRATA_TRY_ASSIGN(checkpoints_, list_checkpoints(loaded_->config, path_, io_, warn));
  if (checkpoints_.empty()) return no_checkpoint(loaded_->config, path_);
  if (objective_of(loaded_->config).scores)
    return Status::error(Code::unsupported,
                         str(path_, " is a reward model, which scores texts and writes none"));
  decoder_ = with_derived_sizes(decoder_config(loaded_->config));
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
  return Status::ok();
}

std::int64_t GenerationSource::max_positions() const noexcept {
  const std::int64_t most = longest_sequence(decoder_);
  return most == 0 ? 0 : std::max<std::int64_t>(1, most - virtual_tokens());
}

std::int32_t GenerationSource::virtual_tokens() const noexcept {
  return static_cast<std::int32_t>(strata::virtual_tokens(loaded_->config));
}

Result<Program> GenerationSource::record(const CacheShape& shape) const {
  const TrainConfig& config = loaded_->config;
  STRATA_TRY_ASSIGN(Program program, record_cached_decoder(decoder_, shape, dtype_));
  if (trained_part(config) == TrainedPart::adapters ||
      (!adapters_ && trained_part(config) == TrainedPart::subspaces)) {
    STRATA_TRY_ASSIGN(program, with_adapters(std::move(program), config, decoder_));
    STRATA_TRY_ASSIGN(program, with_unread_parameters(std::move(program), config, decoder_));
    return specialize_for_backend(std::move(program), config);
  }
  if (adapters_) {
    STRATA_TRY_ASSIGN(program, add_lora_rows(std::move(program), adapters_->loras(), shape.rows));
  }
  if (const kernels::WeightFormat format = base_format(config); format != kernels::WeightFormat::full) {
    for (ParamInfo& param : program.params) param.trainable = false;
    STRATA_TRY_ASSIGN(program, quantize_weights(std::move(program), format, weight_parts(decoder_)));
  }
  return specialize_for_backend(std::move(program), config);
}

Result<int> GenerationSource::ranks() const {
  const int n = ranks_asked_for(*loaded_);
  const TrainConfig& config = loaded_->config;
  if (n == 1) return 1;
  if (config.parallel.tp != n)
    return Status::error(
        Code::unsupported,
        str("parallel: ranks share a model that generates along tp alone, but this asks for ",
            to_string(model_parallel(config))));
  if (adapters_ || trained_part(config) == TrainedPart::adapters ||
      base_format(config) != kernels::WeightFormat::full)
    return Status::error(Code::unsupported,
                         str("parallel.tp = ", n, ", but adapters and quantized bases generate on one rank"));
  return n;
}

// Splits by heads and columns. Layouts that split rows do not apply: a token that is decoded is one row.
Status GenerationSource::share(ProgramSet& programs, const World& world) {
  TrainConfig& config = loaded_->config;
  TrainConfig::Parallel& parallel = config.parallel;
  parallel.rank = world.rank();
  parallel.ranks = world.size();
  parallel.local_ranks = world.ranks_here();
  parallel.transport = "threads";
  const bool by_vocab =
      std::find(parallel.shard.begin(), parallel.shard.end(), "vocab") != parallel.shard.end();
  parallel.shard = {"megatron"};
  if (by_vocab) parallel.shard.emplace_back("vocab");
  std::array<Program, 2> both = {std::move(programs[ProgramRole::decode]),
                                 std::move(programs[ProgramRole::prefill])};
  STRATA_TRY(split_among_ranks(both, config, decoder_.tied_head));
  programs[ProgramRole::decode] = std::move(both[0]);
  programs[ProgramRole::prefill] = std::move(both[1]);
  return {};
}

// What latent attention keeps of a token, which is said if a program chose it for the memory.
Status GenerationSource::choose_cache(CacheShape& shape, bool is_shared,
                                      const std::function<void(std::string_view)>& warn) {
  const bool is_auto = loaded_->config.memory.latent_cache == "auto";
  const std::string_view obstacle = is_shared   ? "the model is shared by several ranks"
                                    : adapters_ ? "each text of a batch may choose an adapter"
                                                : "";
  STRATA_TRY_ASSIGN(shape.latent, keeps_latent_rows(*loaded_, decoder_, shape, dtype_, obstacle));
  if (is_auto && shape.latent)
    warn(str("memory.latent_cache = latent, since ", loaded_->tree.entry("memory.latent_cache").why));
  return {};
}

Result<std::unique_ptr<Job>> GenerationSource::start(const CacheShape& shape, std::int64_t prefill_rows,
                                                     const std::function<void(std::string_view)>& warn,
                                                     World* world, std::int64_t prefill_logits) {
  ProgramSet programs;
  CacheShape decode = shape, prefill;
  decode.context += virtual_tokens();
  STRATA_TRY(choose_cache(decode, world != nullptr, warn));
  prefill = decode;
  prefill.rows = prefill_rows;
  if (prefill_logits > 0) prefill.logit_rows = prefill_logits;
  STRATA_TRY_ASSIGN(programs[ProgramRole::prefill], record(prefill));
  STRATA_TRY_ASSIGN(programs[ProgramRole::decode], record(decode));
  if (world != nullptr) STRATA_TRY(share(programs, *world));
  programs.set_snapshots(static_cast<std::int32_t>(decode.snapshots));
  auto plan = plan_programs(*loaded_, programs, world != nullptr);
  if (!plan.has_value() && plan.status().code() == Code::does_not_fit && decode.snapshots > 0) {
    decode.snapshots = 0;
    programs.set_snapshots(0);
    plan = plan_programs(*loaded_, programs, world != nullptr);
  }
  if (!plan.has_value() && plan.status().code() == Code::does_not_fit)
    return plan.status().annotate(str("the keys and values of ", plural(decode.sequences, "sequence"), " of ",
                                      decode.context, " tokens need ",
                                      format_bytes(cache_bytes(decoder_, decode, dtype_)), " of the device"));
  if (!plan.has_value()) return plan.status();
  plan_ = *std::move(plan);
  STRATA_TRY_ASSIGN(std::unique_ptr<Job> job, Job::start(loaded_->config, *plan_, io_, nullptr, world));
  STRATA_TRY(load_parameters(job->engine(), warn));
  return job;
}

Status GenerationSource::load_parameters(Engine& engine, const std::function<void(std::string_view)>& warn) {
  const TrainConfig& config = loaded_->config;
  if (!values_ && !adapters_) return load_newest_checkpoint(engine, config, checkpoints_, io_, warn).status();
  if (!adapters_) return values_->initialize(engine, config.train.seed);
  if (values_)
    return values_->initialize(
        engine, config.train.seed,
        [&](const StatePiece& piece, std::span<float> values) { return adapters_->read(piece, values); });
  return load_run_under_adapters(engine, warn);
}

// Checkpoints have no adapters that they were not trained with, so their parameters are read one by one.
Status GenerationSource::load_run_under_adapters(Engine& engine,
                                                 const std::function<void(std::string_view)>& warn) {
  for (const std::string& checkpoint : checkpoints_) {
    Status status = load_checkpoint_under_adapters(engine, checkpoint);
    if (status.is_ok()) return {};
    if (status.code() != Code::corrupt || checkpoint == checkpoints_.back()) return status;
    warn(str(status.message(), "\n  using the previous checkpoint"));
  }
  return no_checkpoint(loaded_->config, path_);
}

Status GenerationSource::load_checkpoint_under_adapters(Engine& engine, const std::string& checkpoint) {
  STRATA_TRY_ASSIGN(const std::unique_ptr<CheckpointParams> params,
                    CheckpointParams::open(loaded_->config, checkpoint, io_));
  ParamSource source = [&](std::string_view name, std::span<float> into) { return params->read(name, into); };
  STRATA_TRY_ASSIGN(std::vector<LoraGroup> subspaces, subspace_groups(loaded_->config, decoder_));
  if (!subspaces.empty()) source = merged_source(std::move(source), std::move(subspaces), decoder_);
  std::string held_name;
  std::vector<float> held;
  return engine.initialize(loaded_->config.train.seed,
                           [&](const StatePiece& piece, std::span<float> values) -> Result<bool> {
                             STRATA_TRY_ASSIGN(const bool is_adapter, adapters_->read(piece, values));
                             if (is_adapter) return true;
                             if (held_name != piece.name) {
                               held_name.clear();
                               held.resize(static_cast<std::size_t>(piece.n_elems));
                               STRATA_TRY(source(piece.name, held));
                               held_name = piece.name;
                             }
                             std::copy_n(held.begin() + piece.offset, values.size(), values.begin());
                             return true;
                           });
}

}  // namespace strata
