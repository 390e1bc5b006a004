#include <unistd.h>
#include <sys/ioctl.h>

#include <ctime>
#include <map>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <strata/runtime/log.h>
#include <strata/runtime/signals.h>
#include <strata/model/hf/folder.h>
#include <strata/runtime/str.h>

#include "exit_code.h"
#include "load_config.h"
#include "machine/gemm_choice.h"
#include "machine/profile_cache.h"
#include "training/budget_request.h"
#include "training/plan_text.h"
#include "training/resume.h"
#include "training/run_paths.h"
#include "training/start_notes.h"
#include "training/summary.h"
#include "training/trainer.h"
#include "training/write_budget.h"
#include "verbs/verbs.h"

namespace strata::cli {
namespace {

std::string default_folder(const TrainConfig& config) {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &utc);
  return str("runs/", config.model.preset.empty() ? std::string("run") : config.model.preset, "-", stamp);
}

int terminal_width() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

RunFolder::Mode open_mode(const Args& args) {
  return !args.resume.empty() ? RunFolder::Mode::resume
         : args.overwrite     ? RunFolder::Mode::overwrite
                              : RunFolder::Mode::fresh;
}

// The tokenizer that was trained is the run's from here on. What depends on where it runs (io.engine,
// log.progress) stays auto: a resumed run may be elsewhere.
void resolve_late(LoadedConfig& loaded, const std::string& path, const TrainingData& training_data) {
  if (loaded.tree.is_auto("data.packing"))
    loaded.tree.resolve(
        "data.packing", training_data.packing(),
        training_data.packing() == "pack" ? "parts of the data are not learnt" : "all of it is learnt");
  if (loaded.tree.is_auto("data.tokenizer"))
    loaded.tree.resolve("data.tokenizer", path + "/tokenizer.json",
                        loaded.config.model.from.empty() ? "trained on data.train" : "the model's own");
}

struct Outcome {
  StopReason stop_reason;
  std::string path;  ///< of the run folder
  std::string text;
  std::string why_stopped = {};
};

// What a run goes on from, newest first; none for a new run. Its folders are locked.
Result<std::vector<std::string>> checkpoints_to_resume(const Args& args, const TrainConfig& config,
                                                       const std::string& path, Io& io) {
  if (!args.resume.empty()) STRATA_TRY(clear_drafts(io, checkpoint_dir(config, path)));
  auto found = list_checkpoints(config, path, io);
  if (!args.resume.empty()) {
    if (!found.has_value())
      return found.status().annotate(
          str("remove ", checkpoint_dir(config, path), " to start from the beginning"));
    return found;
  }
  // Steps of another run beside ours would pass for newer ones, and ours be removed as the oldest. Those of a
  // run that is overwritten go with it.
  const bool goes = config.checkpoint.dir.empty() && args.overwrite && is_run_folder(io, path);
  if (!goes && (!found.has_value() || !found->empty()))
    return Status::error(Code::invalid, str(config.checkpoint.dir.empty() ? "" : "checkpoint.dir = ",
                                            checkpoint_dir(config, path),
                                            " holds checkpoints of another run; name an empty folder"));
  return std::vector<std::string>();
}

bool is_finished(const Manifest& manifest, const TrainConfig& config, const std::string& path, Io& io) {
  if (manifest.step < config.train.steps || !io.exists(path + "/summary.json")) return false;
  const auto summary = read_text(io, path + "/summary.json", 1 << 20);
  return summary.has_value() && summary->find("\"stop_reason\": \"finished\"") != std::string::npos;
}

// Of a folder where one is named, else drawn.
Status initialize_parameters(Engine& engine, const TrainConfig& config, Io& io) {
  STRATA_TRY(engine.initialize(config.train.seed));
  if (config.model.from.empty()) return {};
  STRATA_TRY_ASSIGN(const std::unique_ptr<HfFolder> folder, HfFolder::open(io, config.model.from));
  return engine.fill(Payload::param, [&](const StatePiece& piece, std::span<float> values) {
    return folder->read_part(piece.name, piece.offset, values);
  });
}

std::string nvme_text(const Engine& engine) { return engine.nvme_note() + paths_text(engine.nvme_paths()); }

/// A run between its start and its end, whose plan may change.
struct ActiveRun {
  const Args& args;
  LoadedConfig& loaded;
  const CachedProfile& machine;
  Io& io;
  Trace* trace;
  PlannedJob planned;
  std::unique_ptr<Job> job;

  PlanBasis basis() const { return {machine.profile ? &*machine.profile : nullptr, false}; }
};

// Of a run with these budgets: what it has decided for good, and what was asked for.
Args args_for_budgets(const Args& args, const std::string& run, const std::vector<std::string>& asked) {
  Args given = args;
  given.preset.clear();
  given.init.clear();
  given.items = {str(run, "/", kResolvedConfig)};
  given.items.insert(given.items.end(), asked.begin(), asked.end());
  std::erase_if(given.environment, [](const std::string& v) { return v.starts_with("STRATA_MEMORY_"); });
  return given;
}

// An engine of this plan, with the states of a checkpoint, in the place of the one there is.
Status restart_from_checkpoint(ActiveRun& active, const TrainConfig& config, const RunPlan& plan,
                               const std::string& saved) {
  STRATA_TRY(active.job->restart(config, plan, active.io, active.trace));
  return load_checkpoint(active.job->engine(), active.io, saved).status();
}

// What was asked for is refused before anything is given up; from then on the checkpoint has the states, and
// the folder says what they were trained in until they are trained in something else: in the old plan again,
// where the new one fails after all.
Status change_budgets(ActiveRun& active, Trainer& trainer, const TrainingData& training_data,
                      RunFolder& folder, Progress& progress) {
  const BudgetRequest request(active.io, folder.path());
  const auto asked = request.consume();
  if (request.is_pending()) trainer.ignore_requests();
  const std::string what = asked.has_value() ? fmt::format("{}", fmt::join(*asked, " ")) : "other budgets";
  const auto refused = [&](const Status& why) {
    progress.line(str("asked for ", what, ", which is refused; training goes on as it was: ", why.message()));
    return Status::ok();
  };
  if (!asked.has_value()) return refused(asked.status());
  auto loaded = load_config(args_for_budgets(active.args, folder.path(), *asked));
  if (!loaded.has_value()) return refused(loaded.status());
  loaded->config.data.packing = training_data.packing();
  if (const Status same = check_identity(run_identity(active.loaded.config, training_data),
                                         run_identity(loaded->config, training_data));
      !same.is_ok())
    return refused(same);
  const auto& now = active.loaded.config.memory;
  const auto& then = loaded->config.memory;
  if (then.device_bytes == now.device_bytes && then.pinned_bytes == now.pinned_bytes &&
      then.nvme_bytes == now.nvme_bytes)
    return {};
  auto planned = plan_job(*loaded, active.basis());
  if (!planned.has_value()) return refused(planned.status());
  if (const Status room = active.job->check_room(loaded->config, *planned->plan, active.io); !room.is_ok())
    return refused(room);
  if (const Status writes = trainer.check_budget_change(*planned->plan); !writes.is_ok())
    return refused(writes);
  STRATA_TRY_ASSIGN(const std::string saved, trainer.save_for_restart());
  if (const Status started = restart_from_checkpoint(active, loaded->config, *planned->plan, saved);
      !started.is_ok()) {
    STRATA_TRY(restart_from_checkpoint(active, active.loaded.config, *active.planned.plan, saved)
                   .annotate(str("going on in ", what, " failed (", started.message(),
                                 "), and as it was too; --resume ", folder.path(), " goes on from ", saved)));
    trainer.continue_in(*active.job);
    progress.line(str("asked for ", what, ", which failed; training goes on as it was, from ", saved, ": ",
                      started.message()));
    return {};
  }
  active.planned = *std::move(planned);
  active.loaded = *std::move(loaded);
  resolve_late(active.loaded, folder.path(), training_data);
  STRATA_TRY(folder.write(kResolvedConfig, run_config_toml(active.io, active.loaded.tree, folder.path())));
  STRATA_TRY(folder.write("plan.json",
                          plan_json(active.loaded.config, *active.planned.plan, active.planned.recompute)));
  trainer.continue_in(*active.job);
  progress.line(str("going on in ", what, "\n",
                    start_table(active.loaded.config, active.planned, nvme_text(active.job->engine()))));
  return {};
}

// The template that conversations were written by: the tokenizer's own where it is that, else one made for
// it.
std::string chat_jinja(const TrainConfig& config, const TrainingData& training_data) {
  const auto& [chosen, why, own] = config.data.chosen_chat;
  const Result<ChatTemplate> known = detect_chat_template(own);
  if (!chosen.has_value() || (known.has_value() && known->format == chosen->format)) return own;
  return own.empty() && !training_data.has_conversations() ? std::string() : chat_template_jinja(*chosen);
}

// What a run keeps beside its configuration, so that it needs none of the folders it began with.
Result<std::map<std::string, std::string>> run_files(const TrainConfig& config,
                                                     const TrainingData& training_data, bool resumes,
                                                     Io& io) {
  constexpr std::uint64_t kLimit = std::uint64_t{64} << 20;
  std::map<std::string, std::string> files = {{"tokenizer.json", training_data.tokenizer().to_json()}};
  if (std::string jinja = chat_jinja(config, training_data); !jinja.empty())
    files["chat_template.jinja"] = std::move(jinja);
  if (resumes || config.model.from.empty()) return files;
  // What tells of tokens belongs to the tokenizer, which may be another than the model's own.
  const std::string tokenizer = tokenizer_source(config);
  const bool own_tokenizer =
      tokenizer == config.model.from || tokenizer == config.model.from + "/tokenizer.json";
  for (const char* name : kBaseFiles)
    if (const std::string path = str(config.model.from, "/", name);
        io.exists(path) && (own_tokenizer || std::string_view(name) == "config.json")) {
      STRATA_TRY_ASSIGN(files[str("base/", name)], read_text(io, path, kLimit));
    }
  return files;
}

Status check_not_cancelled(const Signals& signals) {
  if (!signals.stop_requested()) return {};
  return Status::error(Code::cancelled, "stopped by a signal before the first step; nothing was trained");
}

// `asked`: of the request in its folder, what it starts in already.
Result<Outcome> train(const Args& args, LoadedConfig& loaded, std::unique_ptr<RunFolder> folder,
                      Signals& signals, const std::vector<std::string>& asked) {
  Io& io = posix_io();
  const TrainConfig& config = loaded.config;
  const std::string& path = folder->path();
  STRATA_TRY_ASSIGN(const LogLevel level, parse_log_level(config.log.level));
  STRATA_TRY_ASSIGN(const std::unique_ptr<Log> log, Log::create(level));
  STRATA_TRY_ASSIGN(const std::unique_ptr<FolderLock> checkpoint_lock, lock_checkpoint_dir(config, path, io));
  STRATA_TRY_ASSIGN(const std::vector<std::string> checkpoints,
                    checkpoints_to_resume(args, config, path, io));
  STRATA_TRY_ASSIGN(const std::unique_ptr<TrainingData> training_data, TrainingData::open(config, io));
  STRATA_TRY(check_not_cancelled(signals));
  if (!checkpoints.empty()) {
    STRATA_TRY_ASSIGN(const Manifest manifest, read_manifest(io, checkpoints.front()));
    if (const auto implementation = manifest.run.find(std::string(kGemmImplementation));
        implementation != manifest.run.end())
      STRATA_TRY(resolve_bf16_gemm_as(implementation->second, loaded));
    const auto identity = run_identity(config, *training_data);
    STRATA_TRY(check_identity(manifest.run, identity).annotate(checkpoints.front()));
    if (const auto steps = manifest.run.find(std::string(kScheduleSteps));
        steps != manifest.run.end() && steps->second != identity.at(std::string(kScheduleSteps)))
      log->warn("train.steps was ", steps->second, " and is ", config.train.steps,
                ": the learning rate follows another curve from here on");
    const auto implementation_in = [](const std::map<std::string, std::string>& run) {
      const auto implementation = run.find(std::string(kGemmImplementation));
      return implementation == run.end() ? std::string("the CPU in f32") : implementation->second;
    };
    if (const std::string then = implementation_in(manifest.run), now = implementation_in(identity);
        then != now)
      log->warn("the checkpoint's run multiplied by ", then, ", this one by ", now,
                ": from here on bits differ from those of an uninterrupted run");
    if (config.memory.backend == "cuda") {
      const std::string file = str(path, "/", kGemmAlgorithmsFile);
      STRATA_TRY_ASSIGN(const bool same, load_gemm_algorithms(file, implementation_in(identity), io));
      if (!same)
        log->warn(file, " is not of ", implementation_in(identity),
                  ": algorithms of products are chosen anew, and bits may differ from those of before");
    }
    if (is_finished(manifest, config, path, io))
      return Outcome{
          StopReason::finished, path,
          str(path, " is finished: ", manifest.step, " of ", config.train.steps, " steps; nothing to do\n")};
  }
  loaded.config.data.packing =
      training_data->packing();  // whether rows hold several documents is part of the program
  resolve_backend(loaded);
  STRATA_TRY_ASSIGN(
      const CachedProfile machine,
      load_local_profile(io, args.environment, config.memory.backend, config.cpu.share.threads()));
  const SteadyClock clock;
  const std::unique_ptr<Trace> trace = config.log.trace.empty() ? nullptr : std::make_unique<Trace>(clock);
  if (trace) trace->set_enabled(false);  // the trainer turns it on for the steps asked for
  ActiveRun active{args, loaded, machine, io, trace.get(), {}, {}};
  STRATA_TRY_ASSIGN(active.planned,
                    plan_with_batch_split(args, loaded, active.basis(),
                                          [](const Args& given) { return load_config(given); }));
  STRATA_TRY(check_write_budget(config, *active.planned.plan));
  STRATA_TRY(check_not_cancelled(signals));
  STRATA_TRY_ASSIGN(active.job, Job::start(config, *active.planned.plan, io, trace.get()));
  Job& job = *active.job;
  for (const std::string& note : start_notes(config)) print(args.out, note + "\n");
  for (const std::string& note : training_data->notes()) print(args.out, str("data     ", note, "\n"));
  print(args.out, start_table(config, active.planned, nvme_text(job.engine())));
  if (const std::string note = job.engine().nvme_note();
      note != "not used" && note != "io_uring, O_DIRECT, registered buffers")
    log->warn("the nvme tier works below its best: ", note);
  log->debug(active.planned.plan->train.code.size(), " instructions a micro-batch, ",
             active.planned.plan->layout.n_chunks(), " chunks");

  if (!checkpoints.empty()) {
    const auto warn = [&](std::string_view text) { print(args.err, str("strata train: ", text, "\n")); };
    STRATA_TRY_ASSIGN(const std::string from, load_newest_checkpoint(job.engine(), checkpoints, io, warn));
    print(args.out, str("resuming from ", from, "\n"));
  } else {
    STRATA_TRY(initialize_parameters(job.engine(), config, io));
    if (!args.resume.empty())
      print(args.out, str(path, " holds no checkpoint yet: starting from the beginning\n"));
  }
  const ProgressOptions shown =
      progress_options(config.log.progress, config.log.every, isatty(fileno(args.out)) == 1, terminal_width(),
                       args.environment);
  STRATA_TRY(check_not_cancelled(signals));
  resolve_late(loaded, path, *training_data);
  STRATA_TRY_ASSIGN(const auto files, run_files(config, *training_data, !args.resume.empty(), io));
  STRATA_TRY(folder->begin(job.engine().steps(), run_config_toml(io, loaded.tree, path), files));
  STRATA_TRY(folder->write("plan.json", plan_json(config, *active.planned.plan, active.planned.recompute)));

  // That of a run which this one overwrote, or what it starts in: not one that was made since.
  if (const BudgetRequest request(io, path);
      request.is_pending() &&
      (args.resume.empty() || request.read().value_or(std::vector<std::string>()) == asked))
    STRATA_TRY(request.consume().status());
  StreamSink sink(args.out);
  Progress progress(sink, shown);
  Trainer trainer(config, job, *training_data, *folder, progress, signals, io, trace.get());
  STRATA_TRY_ASSIGN(TrainOutcome outcome, trainer.run());
  while (outcome.stop_reason == StopReason::budget_change) {
    STRATA_TRY(change_budgets(active, trainer, *training_data, *folder, progress));
    STRATA_TRY_ASSIGN(outcome, trainer.run());
  }
  const ForecastComparison expected =
      compare_forecast(*active.planned.plan, active.planned.forecast, machine, outcome);
  progress.finish();
  if (trace) STRATA_TRY(trace->write(io, folder->file("trace.json")));
  STRATA_TRY(folder->write("summary.json", summary_json(outcome, job.engine(), *training_data,
                                                        config.io.write_budget_bytes, expected)));
  return Outcome{outcome.stop_reason, path, summary_text(outcome, job.engine(), *folder, expected),
                 outcome.why_stopped};
}

}  // namespace

namespace {

// Everything behind the lock: a run that trains is not touched by a second command.
Result<Outcome> train(const Args& args, Signals& signals) {
  Io& io = posix_io();
  std::unique_ptr<RunFolder> folder;
  const auto lock = [&](const std::string& path) -> Status {
    STRATA_TRY_ASSIGN(folder, RunFolder::open(io, path, open_mode(args)));
    return {};
  };
  if (!args.resume.empty()) STRATA_TRY(lock(args.resume));
  // What it was asked for since it last trained, unless the command line says otherwise.
  std::vector<std::string> asked;
  if (const BudgetRequest request(io, args.resume); !args.resume.empty() && request.is_pending())
    asked = request.read().value_or(asked);  // else the trainer takes it, and refuses it
  Args given = with_defaults(args, asked);
  if (!args.resume.empty()) given.items.insert(given.items.begin(), str(args.resume, "/", kResolvedConfig));
  STRATA_TRY_ASSIGN(LoadedConfig loaded, load_config(given));
  if (folder == nullptr)
    STRATA_TRY(lock(args.out_dir.empty() ? default_folder(loaded.config) : args.out_dir));
  return train(given, loaded, std::move(folder), signals, asked);
}

}  // namespace

int run_train(const Args& args) {
  const auto signals = install_signals();
  if (!signals.has_value()) return print_error(args, "train", signals.status());
  (*signals)->set_answer("\nstrata train: stopping before the first step; again to stop at once");
  const auto outcome = train(args, **signals);
  if (!outcome.has_value()) return print_error(args, "train", outcome.status());
  print(args.out, outcome->text);
  if (outcome->why_stopped.empty()) return kExitOk;
  print(args.out, str("stopped ", outcome->why_stopped, "; go on with --resume ", outcome->path, "\n"));
  return kExitStopped;
}

}  // namespace strata::cli
