#include <strata/train/run.h>

#include <ctime>
#include <filesystem>
#include <memory>

#include <strata/config/load_config.h>
#include <strata/text/text_markers.h>
#include <strata/parallel/agree.h>
#include <strata/session/checkpoint.h>
#include <strata/runtime/io/output_file.h>
#include <strata/runtime/log.h>
#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>
#include <strata/config/objective.h>
#include <strata/train/budget_request.h>
#include <strata/plan/split/plan_stages.h>
#include <strata/train/resume.h>
#include <strata/batches/run_length.h>
#include <strata/plan/write_budget.h>

#include "loop/active_run.h"
#include "loop/begin_run.h"
#include "outputs/metrics_sinks.h"
#include "loop/start/command_trust.h"
#include "loop/start/match_checkpoint.h"
#include "loop/start/rank_start.h"
#include "loop/run_trace.h"
#include <strata/plan/gemm_choice.h>
#include <strata/config/run_paths.h>
#include <strata/config/run_layout.h>
#include "run/summary.h"

namespace strata {
namespace {

// Named by the second; with a number if that is taken, of which other processes' ranks could not know.
std::string default_folder(const TrainConfig& config, bool alone) {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &utc);
  const std::string path =
      str("runs/", config.model.preset.empty() ? "run" : config.model.preset, "-", stamp);
  std::string free = path;
  for (int n = 2; alone && std::filesystem::exists(free); ++n) free = str(path, "-", n);
  return free;
}

RunFolder::Mode open_mode(const RunRequest& request) {
  return !request.resume.empty() ? RunFolder::Mode::resume
         : request.overwrite     ? RunFolder::Mode::overwrite
                                 : RunFolder::Mode::fresh;
}

RunResult nothing_to_do(const Manifest& manifest, const TrainConfig& config, const std::string& path) {
  return {StopReason::finished,
          path,
          str(path, " is finished: ", manifest.step, " of ", config.train.steps, " steps; nothing to do\n"),
          {}};
}

Status check_not_cancelled(const Signals& signals) {
  if (!signals.stop_requested()) return {};
  return Status::error(Code::cancelled, "stopped by a signal before the first step");
}

Status plan_run(ActiveRun& active, const TrainingData& data, const Signals& signals) {
  const TrainConfig::Parallel parallel = active.loaded.config.parallel;
  const auto load = [&](const ConfigRequest& given) -> Result<LoadedConfig> {
    STRATA_TRY_ASSIGN(LoadedConfig loaded, load_config(given));
    loaded.config.parallel = parallel;
    decide_by_data(loaded, data);
    return loaded;
  };
  STRATA_TRY_ASSIGN(active.planned,
                    plan_with_batch_split(active.request, active.loaded, active.basis(), load));
  STRATA_TRY(check_write_budget(active.loaded.config.io.write_budget_bytes, *active.planned.plan));
  return check_not_cancelled(signals);
}

// Removes a budget request of the run that was overwritten, or one that this run has already applied, but not
// one that was submitted since.
Status drop_applied_request(const RunRequest& request, const std::string& path,
                            const std::vector<std::string>& asked, Io& io) {
  const BudgetRequest pending(io, path);
  if (pending.is_pending() &&
      (request.resume.empty() || pending.read().value_or(std::vector<std::string>()) == asked))
    STRATA_TRY(pending.consume().status());
  return {};
}

Result<RunResult> train_to_end(ActiveRun& active, const TrainingData& training_data, RunFolder& folder,
                               Observer& observer, Signals& signals, RunTask& task) {
  const TrainConfig& config = active.loaded.config;
  Trainer trainer(
      {config, training_data, task, folder, observer, signals, active.io, active.trace, active.world},
      *active.job);
  if (active.resumed) trainer.resume_from(*active.resumed);
  detail::MetricsSinks sinks(config, folder, active.io, observer);
  folder.set_listener(&sinks);
  STRATA_TRY_ASSIGN(TrainOutcome outcome, trainer.run());
  while (outcome.stop_reason == StopReason::budget_change) {
    STRATA_TRY(change_budgets(active, trainer, training_data, folder, observer));
    STRATA_TRY_ASSIGN(outcome, trainer.run());
  }
  const ForecastComparison expected =
      compare_forecast(*active.planned.plan, active.planned.forecast, active.machine, outcome);
  STRATA_TRY(detail::write_trace(active.trace, 0, folder.path(), active.io));
  outcome.init_s = active.init_s;
  Engine& engine = active.job->engine();
  STRATA_TRY(
      folder.write("summary.json", summary_json(outcome, engine, config.io.write_budget_bytes, expected)));
  sinks.finish();
  return RunResult{outcome.stop_reason, folder.path(), summary_text(outcome, engine, folder, expected),
                   outcome.why_stopped};
}

/// The ranks of a run, as rank 0 sees them.
struct Ranks {
  World* world = nullptr;  ///< null if there is one
  StartAnnouncement* announcement = nullptr;
};

// Whether all ranks see where checkpoints are saved, if that is outside of the run folder.
Status see_checkpoints(const TrainConfig& config, World& world, Io& io) {
  return config.checkpoint.dir.empty() ? Status::ok() : check_all_see(world, config.checkpoint.dir, io);
}

// Writes the tokenizer of rank 0, which it may have trained, with what belongs to it, for the other ranks.
Result<std::string> share_tokenizer(Io& io, const TrainConfig& config, const Tokenizer& tokenizer) {
  const ChatChoice& choice = config.data.chosen_chat;
  Digester digester;
  digester.update(tokenizer.document_digest());
  digester.update(std::string_view(choice.jinja));
  const std::string folder = str(config.data.cache_dir, "/", to_hex(digester.digest()), ".tokenizer");
  STRATA_TRY(io.make_dirs(folder));
  STRATA_TRY(
      write_text_atomically(io, str(folder, "/", kTextMarkersFile), text_markers_json(tokenizer.markers())));
  if (!choice.jinja.empty())
    STRATA_TRY(write_text_atomically(io, str(folder, "/", kChatTemplateFile), choice.jinja));
  STRATA_TRY(write_text_atomically(io, folder + "/tokenizer.json", tokenizer.to_json()));
  return folder;
}

// Tells the other ranks what to do, and waits until they have planned it too.
Status announce(const ActiveRun& active, const TrainingData& training_data, const std::string& path,
                const std::vector<std::string>& checkpoints, Ranks& ranks) {
  if (ranks.world == nullptr) return {};
  ConfigTree tree = active.loaded.tree;
  if (tree.is_auto("data.tokenizer")) {
    STRATA_TRY_ASSIGN(const std::string folder,
                      share_tokenizer(active.io, active.loaded.config, training_data.tokenizer()));
    tree.resolve("data.tokenizer", folder, "that of rank 0");
  }
  if (tree.is_auto("data.packing"))
    tree.resolve("data.packing", training_data.packing(), "decided by rank 0");
  STRATA_TRY(ranks.announcement->make({path, tree.to_toml(true), checkpoints}));
  STRATA_TRY(check_all_see(*ranks.world, path, active.io));
  STRATA_TRY(agree(ranks.world, Status::ok()));
  return see_checkpoints(active.loaded.config, *ranks.world, active.io);
}

// An empty draft is what a run leaves that was killed while it wrote one.
Status check_prometheus_file(const std::string& file, Io& io) {
  if (file.empty()) return {};
  const auto is_own = [](std::string_view head) { return head.starts_with("# HELP strata_"); };
  STRATA_TRY(check_output({"log.prometheus =", file, "a file of strata's figures"}, is_own));
  const std::string draft = file + ".part";
  if (io.exists(draft)) {
    STRATA_TRY_ASSIGN(const auto found, io.open(draft, OpenMode::read));
    STRATA_TRY_ASSIGN(const std::uint64_t size, found->size());
    if (size == 0) return {};
  }
  return check_output({"log.prometheus =", draft, "a draft of strata's figures"}, is_own);
}

// `asked`: the assignments of the budget request in the folder that are already part of `loaded`.
Result<RunResult> train(const RunRequest& request, LoadedConfig& loaded, std::unique_ptr<RunFolder> folder,
                        Observer& observer, Signals& signals, const std::vector<std::string>& asked,
                        Ranks& ranks) {
  Io& io = posix_io();
  const SteadyClock clock;
  const std::int64_t start = clock.now_ns();
  const TrainConfig& config = loaded.config;
  const std::string& path = folder->path();
  STRATA_TRY_ASSIGN(const LogLevel level, parse_log_level(config.log.level));
  STRATA_TRY_ASSIGN(const std::unique_ptr<Log> log, Log::create(level));
  STRATA_TRY(check_prometheus_file(config.log.prometheus, io));
  STRATA_TRY_ASSIGN(const std::unique_ptr<FolderLock> checkpoint_lock,
                    lock_checkpoint_dir(config.checkpoint.dir, path, io));
  STRATA_TRY_ASSIGN(const std::vector<std::string> checkpoints,
                    checkpoints_to_resume(request, config, path, io, observer));
  STRATA_TRY_ASSIGN(const std::unique_ptr<TrainingData> training_data, TrainingData::open(config, io));
  STRATA_TRY(check_not_cancelled(signals));
  decide_by_data(loaded, *training_data);
  resolve_backend(loaded);
  if (!checkpoints.empty()) {
    STRATA_TRY_ASSIGN(const Manifest manifest, read_manifest(io, checkpoints.front()));
    STRATA_TRY(match_checkpoint(checkpoints.front(), manifest, *training_data, path, loaded, io, *log));
    if (is_finished(manifest, config, path, io)) return nothing_to_do(manifest, config, path);
  }
  STRATA_TRY_ASSIGN(const CachedProfile machine,
                    load_local_profile(io, request.environment, config.memory.backend,
                                       config.cpu.share.threads(), config.parallel.local_ranks));
  const std::unique_ptr<Trace> trace = detail::create_trace(config.log.trace, 0, clock);
  ActiveRun active{request, loaded, machine, io, trace.get(), ranks.world, {}, {}};
  STRATA_TRY(plan_run(active, *training_data, signals));
  STRATA_TRY(announce(active, *training_data, path, checkpoints, ranks));
  STRATA_TRY(start_job(active));
  report_start(active, *training_data, observer, *log);
  name_commands(config, observer);
  STRATA_TRY_ASSIGN(const TaskKind* const kind, task_kind(config, request.tasks));
  STRATA_TRY_ASSIGN(const std::unique_ptr<RunTask> task, kind->create(config, *training_data));
  // Whatever may fail comes before the folder is changed.
  STRATA_TRY(fill_states(active, checkpoints, path, *task, observer));
  const auto begin = [&]() -> Status {
    STRATA_TRY(check_not_cancelled(signals));
    resolve_data_autos(loaded, path, *training_data);
    STRATA_TRY(begin_folder(active, *training_data, *task, *folder));
    if (checkpoint_lock != nullptr) checkpoint_lock->keep();
    return drop_applied_request(request, path, asked, io);
  };
  STRATA_TRY(agree(ranks.world, begin()));
  active.init_s = 1e-9 * static_cast<double>(clock.now_ns() - start);
  observer.on_start(config);
  return train_to_end(active, *training_data, *folder, observer, signals, *task);
}

// A rank other than 0: its configuration, data and checkpoints are those of rank 0.
Result<RunResult> follow(const RunRequest& request, Signals& signals, World& world, Observer* observer) {
  STRATA_TRY_ASSIGN(const RankStart start, receive_start(world));
  if (start.config.empty()) return RunResult{};
  Io& io = posix_io();
  STRATA_TRY(check_all_see(world, start.path, io));
  RunRequest given{{.items = {str(start.path, "/", kResolvedConfig)},
                    .file_text = start.config,
                    .environment = launcher_variables(request.environment)},
                   start.path,
                   {},
                   false};
  Observer silent;
  CachedProfile no_profile;
  LoadedConfig loaded;
  std::unique_ptr<TrainingData> training_data;
  std::unique_ptr<RunTask> task;
  const SteadyClock clock;
  std::unique_ptr<Trace> trace;
  ActiveRun active{given, loaded, no_profile, io, nullptr, &world, {}, {}};
  const auto load = [&](const std::vector<std::string>& assignments) -> Result<LoadedConfig> {
    STRATA_TRY_ASSIGN(LoadedConfig decided, load_config(with_overrides(given, assignments)));
    describe_ranks(world, request.environment, decided);
    return decided;
  };
  const auto prepare = [&]() -> Status {
    STRATA_TRY_ASSIGN(loaded, load({}));
    watch_ranks(world, loaded.config.parallel.patience_s, observer);
    STRATA_TRY_ASSIGN(training_data, TrainingData::open(loaded.config, io));
    STRATA_TRY_ASSIGN(const TaskKind* const kind, task_kind(loaded.config, request.tasks));
    STRATA_TRY_ASSIGN(task, kind->create(loaded.config, *training_data));
    STRATA_TRY_ASSIGN(active.planned, plan_follower(loaded, load));
    trace = detail::create_trace(loaded.config.log.trace, world.rank(), clock);
    active.trace = trace.get();
    return {};
  };
  STRATA_TRY(agree(&world, prepare()));
  STRATA_TRY(see_checkpoints(loaded.config, world, io));
  STRATA_TRY(start_job(active));
  STRATA_TRY(fill_states(active, start.checkpoints, start.path, *task, silent));
  STRATA_TRY(agree(&world, Status::ok()));
  const std::unique_ptr<RunFolder> folder = RunFolder::follow(io, start.path);
  Trainer trainer({loaded.config, *training_data, *task, *folder, silent, signals, io, trace.get(), &world},
                  *active.job);
  STRATA_TRY_ASSIGN(const TrainOutcome outcome, trainer.run());
  STRATA_TRY(detail::write_trace(trace.get(), world.rank(), start.path, io));
  return RunResult{outcome.stop_reason, start.path, {}, outcome.why_stopped};
}

// Starts threads as ranks if they are asked for. parallel.ranks and parallel.transport stay `auto` in the
// tree, since the run may be resumed by another launcher.
Status decide_ranks(const RunRequest& request, const Signals& signals, LoadedConfig& loaded,
                    std::unique_ptr<RankThreads>& threads, Ranks& ranks) {
  TrainConfig::Parallel& parallel = loaded.config.parallel;
  const bool launched = ranks.world != nullptr;
  if (launched && parallel.transport == "threads")
    return Status::error(Code::invalid, str("parallel.transport = threads, but a launcher started ",
                                            plural(ranks.world->size(), "process"), "; start one"));
  if (launched && parallel.ranks.value_or(ranks.world->size()) != ranks.world->size())
    return Status::error(Code::invalid,
                         str("parallel.ranks = ", *parallel.ranks, ", but the launcher started ",
                             ranks.world->size(), ranks.world->ranks_here() > 1 ? " in its processes" : ""));
  const int asked = all_ranks(loaded.config);
  if (!launched && parallel.transport == "mpi" && asked > 1)
    return Status::error(Code::invalid, str("parallel.transport = mpi, but no launcher started ", asked,
                                            " processes; use mpirun -np ", asked));
  if (!launched && asked > 1) {
    // The request is captured by value: a thread that is hung may outlive it.
    const auto run = [request](World& world, Signals& shared) {
      return follow(request, shared, world, nullptr).status();
    };
    STRATA_TRY_ASSIGN(auto worlds, create_thread_worlds(asked));
    threads = RankThreads::start(std::move(worlds), signals, run);
    ranks.world = &threads->first();
  }
  if (ranks.world == nullptr) return {};
  describe_ranks(*ranks.world, request.environment, loaded);
  if (trained_part(loaded.config) == TrainedPart::subspaces)
    return Status::error(Code::unsupported, str("optim.name = galore, but there are ",
                                                plural(ranks.world->size(), "rank"), "; start one"));
  STRATA_TRY_ASSIGN(const TaskKind* const kind, task_kind(loaded.config, request.tasks));
  if (!kind->runs_on_ranks)
    return Status::error(Code::unsupported,
                         str("train.objective = ", loaded.config.train.objective, ", but there are ",
                             plural(ranks.world->size(), "rank"), "; start one"));
  if (const int sharing = model_parallel(loaded.config).ranks(); ranks.world->size() % sharing != 0)
    return Status::error(
        Code::invalid,
        str("there are ", plural(ranks.world->size(), "rank"), ", which is not a multiple of the ", sharing,
            " that share the model (", to_string(model_parallel(loaded.config)), ")"));
  return check(data_parallel(loaded.config), loaded.config.train.grad_accum);
}

// The paths that may be in the folder of a new run besides the run: its configuration, and what is kept for
// all runs.
std::vector<std::string> may_be_inside(const RunRequest& request, const TrainConfig& config) {
  std::vector<std::string> paths = request.items;
  paths.push_back(config.data.cache_dir);
  paths.insert(paths.end(), config.memory.nvme_dirs.begin(), config.memory.nvme_dirs.end());
  if (!config.checkpoint.dir.empty()) paths.push_back(config.checkpoint.dir);
  return paths;
}

// Everything happens under the lock, so that a second command does not touch a run that is training.
Result<RunResult> lead(const RunRequest& request, Observer& observer, Signals& signals, Ranks& ranks) {
  Io& io = posix_io();
  std::unique_ptr<RunFolder> folder;
  const auto lock = [&](const std::string& path, const std::vector<std::string>& inputs) -> Status {
    STRATA_TRY_ASSIGN(folder, RunFolder::open(io, path, open_mode(request), inputs));
    return {};
  };
  if (!request.resume.empty()) STRATA_TRY(lock(request.resume, {}));
  // Applies budgets that were requested since the run last trained, unless the command line overrides them.
  std::vector<std::string> asked;
  if (const BudgetRequest pending(io, request.resume); !request.resume.empty() && pending.is_pending())
    asked = pending.read().value_or(asked);  // on an error change_budgets() consumes and refuses it
  RunRequest given = with_defaults(request, asked);
  given.replans = ranks.world != nullptr;
  if (!request.resume.empty())
    given.items.insert(given.items.begin(), str(request.resume, "/", kResolvedConfig));
  STRATA_TRY_ASSIGN(LoadedConfig loaded, load_config(given));
  STRATA_TRY(task_kind(loaded.config, request.tasks).status());
  if (!request.resume.empty()) STRATA_TRY(check_commands(loaded, request.resume));
  std::unique_ptr<RankThreads> threads;
  STRATA_TRY(decide_ranks(request, signals, loaded, threads, ranks));
  if (ranks.world != nullptr) watch_ranks(*ranks.world, loaded.config.parallel.patience_s, &observer);
  if (folder == nullptr)
    STRATA_TRY(lock(
        request.out_dir.empty() ? default_folder(loaded.config, ranks.world == nullptr) : request.out_dir,
        may_be_inside(request, loaded.config)));
  StartAnnouncement to_threads(threads == nullptr ? nullptr : ranks.world);
  if (threads != nullptr) ranks.announcement = &to_threads;
  Result<RunResult> result = train(given, loaded, std::move(folder), observer, signals, asked, ranks);
  if (threads == nullptr) return result;
  to_threads.finish(result.status());
  // The error of another rank says more than that the rank has gone.
  const Status other = threads->join(result.status());
  return !result.has_value() && result.status().code() == Code::lost_peer && !other.is_ok() ? other : result;
}

}  // namespace

Result<RunResult> run_training(const RunRequest& request, Observer& observer, Signals& signals,
                               World* world) {
  if (world != nullptr) watch_ranks(*world, WatchOptions().patience_s, &observer);
  if (world != nullptr && world->rank() > 0) return follow(request, signals, *world, &observer);
  World* const launched = world != nullptr && world->size() > 1 ? world : nullptr;
  StartAnnouncement to_processes(launched);
  Ranks ranks{launched, &to_processes};
  Result<RunResult> result = lead(request, observer, signals, ranks);
  to_processes.finish(result.status());
  return result;
}

Result<RunResult> run_training_of_ranks(const RunRequest& request, Observer& observer, Signals& signals,
                                        std::vector<std::unique_ptr<World>> worlds) {
  // No rank ends before the last one has written; after an error the others learn that this one has gone.
  const auto run = [request](World& world, Signals& shared) {
    Status status = follow(request, shared, world, nullptr).status();
    if (status.is_ok()) (void)world.all_gather("");
    return status;
  };
  const auto threads = RankThreads::start(std::move(worlds), signals, run);
  Result<RunResult> result = run_training(request, observer, signals, &threads->first());
  if (result.has_value()) (void)threads->first().all_gather("");
  const Status other = threads->join(result.status());
  return !other.is_ok() && (result.has_value() || result.status().code() == Code::lost_peer) ? other : result;
}

}  // namespace strata
