#include <strata/infer/evaluate_model.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include <strata/batches/pair_batches.h>
#include <strata/batches/token_data.h>
#include <strata/config/load_config.h>
#include <strata/config/objective.h>
#include <strata/config/run_layout.h>
#include <strata/infer/load_checkpoint.h>
#include <strata/infer/pretrained_values.h>
#include <strata/infer/reference.h>
#include <strata/infer/run_on_ranks.h>
#include <strata/model/hf/explain_folder.h>
#include <strata/model/hf/model_files.h>
#include <strata/model/hf/other_parts.h>
#include <strata/plan/job.h>
#include <strata/plan/split/split_model.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

constexpr std::int64_t kMaxDefaultContext = 1024;  // for a folder, if model.seq is not set

/// The model to evaluate: a run at one of its checkpoints, or a Hugging Face folder.
struct Target {
  std::string path;
  bool is_folder = false;
  std::string checkpoint;  ///< set for a run
  std::string name() const { return is_folder ? path : checkpoint; }
};

/// The request with the configuration of the target first, so that its key=value override it.
EvaluateRequest with_configuration_of(const EvaluateRequest& request, Target& target) {
  EvaluateRequest given = request;
  target.path = request.items.front();
  target.is_folder = model_file_exists(posix_io(), target.path + "/config.json");
  given.items.front() =
      target.is_folder ? "model.from=" + target.path : str(target.path, "/", kResolvedConfig);
  given.use = ModelUse::saved;
  return given;
}

Status choose(const EvaluateRequest& request, const TrainConfig& config, Target& target, Io& io,
              const CheckpointWarning& warn) {
  if (target.is_folder)
    return request.checkpoint == kNewestCheckpoint
               ? Status::ok()
               : Status::error(Code::invalid, str("--checkpoint applies to runs only; ", target.path,
                                                  " is a Hugging Face folder"));
  STRATA_TRY_ASSIGN(target.checkpoint, choose_checkpoint(config, target.path, request.checkpoint, io, warn));
  return {};
}

/// Uses the tokenizer that a run was trained with, or limits the default context to what a folder's model
/// supports.
void resolve_target_config(LoadedConfig& loaded, const Target& target) {
  TrainConfig& config = loaded.config;
  // A model that learns from pairs is evaluated on pairs, if there is a run with a reference; one that learns
  // to answer is a model of texts.
  if (target.is_folder ? !objective_of(config).scores : objective_of(config).data != RunData::pairs)
    config.train.objective = "lm";
  if (!target.is_folder) {
    config.data.tokenizer = target.path + "/tokenizer.json";
  } else if (loaded.tree.entry("model.seq").origin == "default") {
    const std::int64_t known = config.model.loaded->positions;
    config.model.seq = static_cast<int>(known > 0 ? std::min(known, kMaxDefaultContext) : kMaxDefaultContext);
  }
}

Status load_parameters(Engine& engine, const TrainConfig& config, const Target& target, Io& io) {
  if (target.is_folder) {
    STRATA_TRY_ASSIGN(const std::unique_ptr<PretrainedValues> given, PretrainedValues::open(io, config));
    return engine.initialize(config.train.seed, [&](const StatePiece& piece, std::span<float> values) {
      return given->read(piece, values);
    });
  }
  return load_run_checkpoint(engine, config, target.checkpoint, io).status();
}

/// Texts, or pairs, in order.
class EvaluationData {
 public:
  static Result<EvaluationData> create(const std::unique_ptr<TokenCache>& cache, const Tokenizer& tokenizer,
                                       const TrainConfig& config, const std::string& packing) {
    EvaluationData data;
    data.sequences_ = config.train.micro_batch;
    if (objective_of(config).data == RunData::pairs) {
      STRATA_TRY_ASSIGN(
          PairDataset pairs,
          PairDataset::create(*cache, pair_options(config, SampleOrder::sequential, tokenizer)));
      data.pairs_ = std::move(pairs);
      data.digest_ = data_digest(tokenizer, {&cache, 1}, "pack");
      return data;
    }
    STRATA_TRY_ASSIGN(TokenDataset rows, create_dataset(*cache, config, packing, SampleOrder::sequential, 0));
    data.rows_ = std::move(rows.data);
    return data;
  }
  /// For one rank.
  std::unique_ptr<MicroBatches> batches() const {
    if (pairs_) return std::make_unique<PairBatches>(*pairs_);
    return std::make_unique<DatasetBatches>(*rows_, sequences_);
  }
  /// The same, with what the reference of the run gives pairs. The engine's parameters may change.
  Result<std::unique_ptr<MicroBatches>> batches_for(Engine& engine, const TrainConfig& config,
                                                    const std::string& checkpoint) const {
    if (!pairs_) return batches();
    auto pairs = std::make_unique<PairBatches>(*pairs_);
    STRATA_TRY(set_reference(engine, config, *pairs, digest_, checkpoint, posix_io()));
    return std::unique_ptr<MicroBatches>(std::move(pairs));
  }
  std::uint64_t n_samples() const { return pairs_ ? pairs_->stats().n_pairs : rows_->n_samples(); }

 private:
  std::unique_ptr<Dataset> rows_;
  std::optional<PairDataset> pairs_;
  std::string digest_;  // the digest of the pairs' data
  std::int64_t sequences_ = 1;
};

/// The objects that the ranks of an evaluation have in common.
struct Evaluation {
  const EvaluateRequest& request;
  const Target& target;
  const EvaluationData& data;
  std::string packing;
  std::int64_t n = 0;  ///< micro-batches
};

/// One rank's model and its loss, which is that of all ranks.
struct RankResult {
  std::unique_ptr<const RunPlan> plan;
  std::unique_ptr<Job> job;
  EvaluationLoss loss;
};

/// `world`: the ranks that share the model; null: there is one.
Status evaluate_rank(const Evaluation& e, LoadedConfig& loaded, World* world, RankResult& rank) {
  Io& io = posix_io();
  const TrainConfig& config = loaded.config;
  STRATA_TRY_ASSIGN(rank.plan, plan_evaluation(loaded, world != nullptr));
  STRATA_TRY_ASSIGN(rank.job, Job::start(config, *rank.plan, io, nullptr, world));
  STRATA_TRY_ASSIGN(const std::unique_ptr<MicroBatches> batches,
                    e.data.batches_for(rank.job->engine(), config, e.target.checkpoint));
  STRATA_TRY(load_parameters(rank.job->engine(), config, e.target, io));
  STRATA_TRY_ASSIGN(rank.loss, evaluate_loss(rank.job->engine(), *batches, e.n));
  return {};
}

/// The configuration of a rank that is a thread.
Result<LoadedConfig> config_of_rank(const Evaluation& e, int rank, int ranks) {
  STRATA_TRY_ASSIGN(LoadedConfig loaded, load_config(e.request));
  resolve_target_config(loaded, e.target);
  loaded.config.data.packing = e.packing;
  TrainConfig::Parallel& parallel = loaded.config.parallel;
  parallel.rank = rank;
  parallel.ranks = parallel.local_ranks = ranks;
  parallel.transport = "threads";
  return loaded;
}

/// Evaluates on ranks that share the model, and tells `take` of the first one.
Status evaluate_shared(const Evaluation& e, int ranks, const std::function<void(const RankResult&)>& take) {
  std::vector<RankResult> all(static_cast<std::size_t>(ranks));
  const auto evaluate = [&](World& world) -> Status {
    RankResult& rank = all[static_cast<std::size_t>(world.rank())];
    STRATA_TRY_ASSIGN(LoadedConfig loaded, config_of_rank(e, world.rank(), ranks));
    Status status = evaluate_rank(e, loaded, &world, rank);
    if (!status.is_ok()) rank = {};  // its world ends now
    return status;
  };
  return run_on_ranks(ranks, evaluate, [&] {
    if (all.front().job != nullptr) take(all.front());
    all.clear();
  });
}

Result<ModelEvaluation> evaluate(const EvaluateRequest& request, LoadedConfig& loaded, Target target,
                                 const CheckpointWarning& warn) {
  Io& io = posix_io();
  TrainConfig& config = loaded.config;
  STRATA_TRY(choose(request, config, target, io, warn));
  resolve_target_config(loaded, target);
  ModelEvaluation m;
  STRATA_TRY_ASSIGN(m.files, request.data.empty() ? locate_data_files(config.data.val, "data.val")
                                                  : locate_data_files(request.data, "--data"));
  STRATA_TRY_ASSIGN(const TextCodec codec, open_codec(config, {}, io));
  if (std::string note = codec.tokenizer.note(); !note.empty()) m.notes.push_back(std::move(note));
  STRATA_TRY(io.make_dirs(config.data.cache_dir));
  STRATA_TRY_ASSIGN(const std::unique_ptr<TokenCache> cache,
                    annotated(open_token_cache(config, codec, m.files, io, m.notes), "--data"));
  m.packing = config.data.packing = resolve_packing(config, has_whole_documents(config, *cache));
  STRATA_TRY_ASSIGN(const EvaluationData data,
                    annotated(EvaluationData::create(cache, codec.tokenizer, config, m.packing), "--data"));
  const std::int64_t there = data.batches()->n_batches();
  const std::int64_t n = request.batches > 0 ? std::min(request.batches, there) : there;
  const Evaluation e{request, target, data, m.packing, n};
  const auto take = [&](const RankResult& rank) {
    const Engine& engine = rank.job->engine();
    m.loss = rank.loss;
    m.budgets = engine.plan().options.budgets;
    m.planned = engine.plan().planned_peak;
    m.measured = engine.peak_bytes();
  };
  if (const int ranks = ranks_asked_for(loaded); ranks > 1) {
    STRATA_TRY(evaluate_shared(e, ranks, take));
  } else {
    RankResult one;
    STRATA_TRY(evaluate_rank(e, loaded, nullptr, one));
    take(one);
  }
  m.model = target.name();
  if (!std::isfinite(m.loss.nats))
    return Status::error(Code::diverged, str("the loss of ", m.model, " is ", m.loss.nats));
  m.dtype = config.train.dtype;
  m.seq = config.model.seq;
  const auto of_data = static_cast<std::int64_t>(data.n_samples());
  m.sequences = std::min(n * config.train.micro_batch, of_data);
  m.dropped = of_data - m.sequences;
  return m;
}

}  // namespace

Result<ModelEvaluation> evaluate_model(const EvaluateRequest& request, const CheckpointWarning& warn) {
  Io& io = posix_io();
  Target target;
  const EvaluateRequest given = with_configuration_of(request, target);
  if (!target.is_folder) {
    STRATA_TRY(explain_hf_folder(io, target.path));
    STRATA_TRY(check_is_run(io, target.path));
  }
  if (target.is_folder && is_run_folder(io, target.path))
    warn(str("note: ", target.path, " is a Hugging Face folder and a run; the folder's model is read"));
  STRATA_TRY_ASSIGN(LoadedConfig loaded, load_config(given));
  if (const std::string note = left_alone_note(io, loaded.config.model.from); !note.empty()) warn(note);
  return evaluate(given, loaded, std::move(target), warn);
}

}  // namespace strata
