#include <algorithm>
#include <cmath>
#include <thread>

#include <fmt/format.h>

#include <strata/model/hf/explain_folder.h>
#include <strata/model/hf/model_files.h>
#include <strata/parallel/world.h>
#include <strata/runtime/config/json.h>
#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>
#include <strata/config/objective.h>
#include <strata/batches/pair_batches.h>
#include <strata/infer/evaluation.h>
#include <strata/batches/micro_batches.h>
#include <strata/plan/job.h>
#include <strata/config/load_config.h>
#include <strata/infer/pretrained_values.h>
#include <strata/train/resume.h>
#include <strata/train/run_folder.h>
#include <strata/plan/split/split_model.h>
#include <strata/plan/tiers.h>
#include <strata/batches/token_data.h>
#include <strata/config/run_checkpoints.h>
#include <strata/infer/load_checkpoint.h>
#include <strata/config/run_layout.h>

#include "exit_code.h"
#include "print.h"
#include "verbs/verbs.h"

namespace strata::cli {
namespace {

constexpr std::int64_t kMaxDefaultContext = 1024;  // for a folder, if model.seq is not set

/// The model to evaluate: a run at one of its checkpoints, or a Hugging Face folder.
struct EvalTarget {
  std::string path;
  bool is_folder = false;
  std::string checkpoint;  ///< set for a run
  std::string name() const { return is_folder ? path : checkpoint; }
};

struct EvalReport {
  EvalTarget target;
  EvaluationLoss loss;
  std::vector<std::string> files, notes;
  std::string packing, dtype;
  std::int64_t sequences = 0, seq = 0, dropped = 0;
};

/// The arguments with the configuration of the target first, so that their key=value override it.
Args with_configuration_of(const Args& args, EvalTarget& target) {
  Args given = args;
  target.path = args.items.front();
  target.is_folder = model_file_exists(posix_io(), target.path + "/config.json");
  given.items.front() =
      target.is_folder ? "model.from=" + target.path : str(target.path, "/", kResolvedConfig);
  // CLI11 puts everything after --data into `data`, key=value included.
  const auto files = std::stable_partition(given.data.begin(), given.data.end(), is_assignment);
  given.items.insert(given.items.end(), given.data.begin(), files);
  given.data.erase(given.data.begin(), files);
  given.use = ModelUse::saved;
  return given;
}

Status choose_checkpoint(const Args& args, const TrainConfig& config, EvalTarget& target, Io& io) {
  if (target.is_folder)
    return args.checkpoint == -1
               ? Status::ok()
               : Status::error(Code::invalid, str("--checkpoint applies to runs only; ", target.path,
                                                  " is a Hugging Face folder"));
  const auto warn = [&](std::string_view text) { print(args.err, str("strata eval: ", text, "\n")); };
  STRATA_TRY_ASSIGN(const std::vector<std::string> checkpoints,
                    list_checkpoints(config, target.path, io, warn));
  if (checkpoints.empty()) return no_checkpoint(config, target.path);
  target.checkpoint = checkpoints.front();
  if (args.checkpoint == -1) return {};
  auto found = args.checkpoint == kBestCheckpoint ? best_checkpoint(checkpoints, target.path, io, warn)
                                                  : find_checkpoint(checkpoints, args.checkpoint, io);
  if (!found.has_value()) return found.status().annotate(target.path);
  target.checkpoint = *std::move(found);
  return {};
}

/// Uses the tokenizer that a run was trained with, or limits the default context to what a folder's model
/// supports.
void resolve_target_config(LoadedConfig& loaded, const EvalTarget& target) {
  TrainConfig& config = loaded.config;
  // What learns from pairs is evaluated on pairs, if there is a run with a reference; what learns to answer
  // is a model of texts.
  if (target.is_folder ? !is_reward_model(config) : !compares_pairs(config)) config.train.objective = "lm";
  if (!target.is_folder) {
    config.data.tokenizer = target.path + "/tokenizer.json";
  } else if (loaded.tree.entry("model.seq").origin == "default") {
    const std::int64_t known = config.model.loaded->positions;
    config.model.seq = static_cast<int>(known > 0 ? std::min(known, kMaxDefaultContext) : kMaxDefaultContext);
  }
}

Status load_parameters(Engine& engine, const TrainConfig& config, const EvalTarget& target, Io& io) {
  if (target.is_folder) {
    STRATA_TRY_ASSIGN(const std::unique_ptr<PretrainedValues> given, PretrainedValues::open(io, config));
    return engine.initialize(config.train.seed, [&](const StatePiece& piece, std::span<float> values) {
      return given->read(piece, values);
    });
  }
  return load_run_checkpoint(engine, config, target.checkpoint, io).status();
}

std::string text_of(const EvalReport& m, const Engine& engine) {
  std::string text = str("model    ", m.target.name(), "\n");
  for (const std::string& note : m.notes) text += str("data     ", note, "\n");
  if (m.loss.pairs.n > 0)
    return text +
           fmt::format("loss     {:.4f}, accuracy {:.4f}\nover     {} pairs, in {}\n", m.loss.nats,
                       m.loss.pairs.accuracy, m.loss.counted.tokens, m.dtype) +
           tiers_text(engine);
  text += fmt::format("loss     {:.4f} nats per token, perplexity {:.3f}", m.loss.nats, m.loss.perplexity());
  if (const auto bits = m.loss.bits_per_byte()) text += fmt::format(", {:.4f} bits per byte", *bits);
  text += fmt::format("\nover     {} tokens ({} bytes of text) in {} sequences of {}, {}, in {}",
                      m.loss.counted.tokens, m.loss.counted.bytes, m.sequences, m.seq, m.packing, m.dtype);
  if (m.dropped > 0) text += fmt::format("; {} sequences dropped", m.dropped);
  return text + "\n" + tiers_text(engine);
}

std::string json_of(const EvalReport& m, const Engine& engine) {
  const auto number = [](double x) { return std::isfinite(x) ? fmt::format("{:.6f}", x) : "null"; };
  std::string files;
  for (const std::string& file : m.files) files += str(files.empty() ? "" : ", ", json_string(file));
  const auto bits = m.loss.bits_per_byte();
  if (m.loss.pairs.n > 0)
    return fmt::format(
        "{{\n  \"model\": {},\n  \"data\": [{}],\n  \"loss\": {},\n  \"loss_bits\": \"{}\",\n  "
        "\"accuracy\": {},\n  \"chosen\": {},\n  \"rejected\": {},\n  \"pairs\": {},\n  "
        "\"micro_batches\": {},\n  \"dtype\": \"{}\"\n}}\n",
        json_string(m.target.name()), files, number(m.loss.nats), double_bits(m.loss.nats),
        number(m.loss.pairs.accuracy), number(m.loss.pairs.chosen), number(m.loss.pairs.rejected),
        m.loss.counted.tokens, m.loss.micro_batches, m.dtype);
  return fmt::format(
      "{{\n  \"model\": {},\n  \"data\": [{}],\n  \"loss\": {},\n  \"loss_bits\": \"{}\",\n  \"perplexity\": "
      "{},\n  \"bits_per_byte\": {},\n  \"tokens\": {},\n  \"bytes\": {},\n  \"sequences\": {},\n  \"seq\": "
      "{},\n  \"dropped_sequences\": {},\n  \"micro_batches\": {},\n  \"packing\": \"{}\",\n  \"dtype\": "
      "\"{}\",\n  "
      "\"peak_bytes\": {},\n  "
      "\"planned_bytes\": {},\n  \"budget_bytes\": {}\n}}\n",
      json_string(m.target.name()), files, number(m.loss.nats), double_bits(m.loss.nats),
      number(m.loss.perplexity()), bits ? number(*bits) : "null", m.loss.counted.tokens, m.loss.counted.bytes,
      m.sequences, m.seq, m.dropped, m.loss.micro_batches, m.packing, m.dtype,
      tiers_json(engine.peak_bytes()), tiers_json(engine.plan().planned_peak),
      tiers_json(engine.plan().options.budgets));
}

/// Texts, or pairs, in order.
class EvalData {
 public:
  static Result<EvalData> create(const std::unique_ptr<TokenCache>& cache, const Tokenizer& tokenizer,
                                 const TrainConfig& config, const std::string& packing) {
    EvalData data;
    data.sequences_ = config.train.micro_batch;
    if (compares_pairs(config)) {
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
  std::string digest_;  // of the pairs' data
  std::int64_t sequences_ = 1;
};

/// What the ranks of an evaluation have in common.
struct Evaluation {
  const Args& args;
  const EvalTarget& target;
  const EvalData& data;
  std::string packing;
  std::int64_t n = 0;  ///< micro-batches
};

/// One rank's model and its loss, which is that of all ranks.
struct EvalRank {
  std::unique_ptr<World> world = {};  ///< null: there is one rank
  std::unique_ptr<const RunPlan> plan;
  std::unique_ptr<Job> job;
  EvaluationLoss loss;
};

/// `world`: the ranks that share the model; null: there is one.
Status evaluate_rank(const Evaluation& e, LoadedConfig& loaded, World* world, EvalRank& rank) {
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
  STRATA_TRY_ASSIGN(LoadedConfig loaded, load_config(e.args));
  resolve_target_config(loaded, e.target);
  loaded.config.data.packing = e.packing;
  TrainConfig::Parallel& parallel = loaded.config.parallel;
  parallel.rank = rank;
  parallel.ranks = parallel.local_ranks = ranks;
  parallel.transport = "threads";
  return loaded;
}

/// Evaluates on ranks that share the model, and returns the first one.
Result<EvalRank> evaluate_shared(const Evaluation& e, int ranks) {
  STRATA_TRY_ASSIGN(auto worlds, create_thread_worlds(ranks));
  std::vector<EvalRank> all(worlds.size());
  std::vector<Status> outcomes(worlds.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t r = 0; r < worlds.size(); ++r)
      threads.emplace_back([&, r] {
        auto loaded = config_of_rank(e, static_cast<int>(r), ranks);
        outcomes[r] =
            loaded.has_value() ? evaluate_rank(e, *loaded, worlds[r].get(), all[r]) : loaded.status();
        if (!outcomes[r].is_ok()) worlds[r].reset();  // so that the others do not wait for this rank
      });
  }
  for (const Status& outcome : outcomes)
    if (!outcome.is_ok() && outcome.code() != Code::lost_peer) return outcome;
  for (const Status& outcome : outcomes) STRATA_TRY(outcome);
  all.front().world = std::move(worlds.front());
  return std::move(all.front());
}

Result<std::string> evaluate(const Args& args, LoadedConfig& loaded, EvalTarget target) {
  Io& io = posix_io();
  TrainConfig& config = loaded.config;
  STRATA_TRY(choose_checkpoint(args, config, target, io));
  resolve_target_config(loaded, target);
  EvalReport m;
  STRATA_TRY_ASSIGN(m.files, args.data.empty() ? locate_data_files(config.data.val, "data.val")
                                               : locate_data_files(args.data, "--data"));
  STRATA_TRY_ASSIGN(const TextCodec codec, open_codec(config, {}, io));
  if (std::string note = codec.tokenizer.note(); !note.empty()) m.notes.push_back(std::move(note));
  STRATA_TRY(io.make_dirs(config.data.cache_dir));
  STRATA_TRY_ASSIGN(const std::unique_ptr<TokenCache> cache,
                    annotated(open_token_cache(config, codec, m.files, io, m.notes), "--data"));
  m.packing = config.data.packing = resolve_packing(config, has_whole_documents(config, *cache));
  STRATA_TRY_ASSIGN(const EvalData data,
                    annotated(EvalData::create(cache, codec.tokenizer, config, m.packing), "--data"));
  const std::int64_t there = data.batches()->n_batches();
  const std::int64_t n = args.batches > 0 ? std::min(args.batches, there) : there;
  const Evaluation e{args, target, data, m.packing, n};
  EvalRank first;
  if (const int ranks = ranks_asked_for(loaded); ranks > 1) {
    STRATA_TRY_ASSIGN(first, evaluate_shared(e, ranks));
  } else {
    STRATA_TRY(evaluate_rank(e, loaded, nullptr, first));
  }
  m.loss = first.loss;
  if (!std::isfinite(m.loss.nats))
    return Status::error(Code::diverged, str("the loss of ", target.name(), " is ", m.loss.nats));
  m.target = std::move(target);
  m.dtype = config.train.dtype;
  m.seq = config.model.seq;
  const auto of_data = static_cast<std::int64_t>(data.n_samples());
  m.sequences = std::min(n * config.train.micro_batch, of_data);
  m.dropped = of_data - m.sequences;
  const Engine& engine = first.job->engine();
  return args.json ? json_of(m, engine) : text_of(m, engine);
}

}  // namespace

int run_eval(const Args& args) {
  const auto refuse = [&](const Status& status) { return print_error(args, "eval", status); };
  if (args.items.empty() || is_assignment(args.items.front()))
    return refuse(Status::error(
        Code::invalid, "missing run or Hugging Face folder; usage: strata eval runs/demo --data unseen.txt"));
  EvalTarget target;
  const Args given = with_configuration_of(args, target);
  if (!target.is_folder) {
    Status there = explain_hf_folder(posix_io(), target.path);
    if (there.is_ok()) there = RunFolder::check(posix_io(), target.path, RunFolder::Mode::resume);
    if (!there.is_ok()) return refuse(there);
  }
  if (target.is_folder && is_run_folder(posix_io(), target.path))
    print(args.err, str("strata eval: note: ", target.path,
                        " is a Hugging Face folder and a run; the folder's model is read\n"));
  auto loaded = load_config(given);
  if (!loaded.has_value()) return refuse(loaded.status());
  const auto text = evaluate(given, *loaded, std::move(target));
  if (!text.has_value()) return refuse(text.status());
  print(args.out, *text);
  return kExitOk;
}

}  // namespace strata::cli
