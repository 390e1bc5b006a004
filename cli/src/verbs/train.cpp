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

RunFolder::Opening opening_of(const Args& args) {
  return !args.resume.empty() ? RunFolder::Opening::resume
         : args.overwrite     ? RunFolder::Opening::overwrite
                              : RunFolder::Opening::fresh;
}

// The tokenizer that was trained is the run's from here on. What depends on where it runs (io.engine,
// log.progress) stays auto: a resumed run may be elsewhere.
void resolve_late(LoadedConfig& loaded, const std::string& path, const Workload& workload) {
  if (loaded.tree.is_auto("data.packing"))
    loaded.tree.resolve(
        "data.packing", workload.packing(),
        workload.packing() == "pack" ? "parts of the data are not learnt" : "all of it is learnt");
  if (loaded.tree.is_auto("data.tokenizer"))
    loaded.tree.resolve("data.tokenizer", path + "/tokenizer.json",
                        loaded.config.model.from.empty() ? "trained on data.train" : "the model's own");
}

struct Outcome {
  Ending ending;
  std::string path;  ///< of the run folder
  std::string text;
  std::string why_stopped = {};
};

// What a run goes on from, newest first; none for a new run. Its folders are locked.
Result<std::vector<std::string>> checkpoints_to_resume(const Args& args, const TrainConfig& config,
                                                       const std::string& path, Io& io) {
  if (!args.resume.empty()) STRATA_TRY(clear_drafts(io, checkpoint_dir(config, path)));
  auto found = checkpoints_of(config, path, io);
  if (!args.resume.empty()) {
    if (!found.has_value())
      return found.status().annotate(
          str("remove ", checkpoint_dir(config, path), " to start from the beginning"));
    return found;
  }
  // Steps of another run beside ours would pass for newer ones, and ours be removed as the oldest. Those of a
  // run that is overwritten go with it.
  const bool goes = config.checkpoint.dir.empty() && args.overwrite && holds_run(io, path);
  if (!goes && (!found.has_value() || !found->empty()))
    return Status::error(Code::invalid, str(config.checkpoint.dir.empty() ? "" : "checkpoint.dir = ",
                                            checkpoint_dir(config, path),
                                            " holds checkpoints of another run; name an empty folder"));
  return std::vector<std::string>();
}

bool is_finished(const Manifest& manifest, const TrainConfig& config, const std::string& path, Io& io) {
  if (manifest.step < config.train.steps || !io.exists(path + "/summary.json")) return false;
  const auto summary = read_text(io, path + "/summary.json", 1 << 20);
  return summary.has_value() && summary->find("\"ending\": \"finished\"") != std::string::npos;
}

// Of a folder where one is named, else drawn.
Status first_values(Engine& engine, const TrainConfig& config, Io& io) {
  STRATA_TRY(engine.initialize(config.train.seed));
  if (config.model.from.empty()) return {};
  STRATA_TRY_ASSIGN(const std::unique_ptr<HfFolder> folder, HfFolder::open(io, config.model.from));
  return engine.fill(Payload::param, [&](const StatePiece& piece, std::span<float> values) {
    return folder->read_part(piece.name, piece.offset, values);
  });
}

std::string nvme_text(const Engine& engine) { return engine.nvme_note() + paths_text(engine.nvme_paths()); }

/// A run between its start and its end, whose plan may change.
struct Going {
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
Args in_budgets(const Args& args, const std::string& run, const std::vector<std::string>& asked) {
  Args given = args;
  given.preset.clear();
  given.init.clear();
  given.items = {str(run, "/", kResolvedConfig)};
  given.items.insert(given.items.end(), asked.begin(), asked.end());
  std::erase_if(given.environment, [](const std::string& v) { return v.starts_with("STRATA_MEMORY_"); });
  return given;
}

// An engine of this plan, with the states of a checkpoint, in the place of the one there is.
Status start_from(Going& going, const TrainConfig& config, const RunPlan& plan, const std::string& saved) {
  STRATA_TRY(going.job->restart(config, plan, going.io, going.trace));
  return load_checkpoint(going.job->engine(), going.io, saved).status();
}

// What was asked for is refused before anything is given up; from then on the checkpoint has the states, and
// the folder says what they were trained in until they are trained in something else: in the old plan again,
// where the new one fails after all.
Status change_budgets(Going& going, Trainer& trainer, const Workload& workload, RunFolder& folder,
                      Progress& progress) {
  const BudgetRequest request(going.io, folder.path());
  const auto asked = request.take();
  if (request.is_there()) trainer.ignore_requests();
  const std::string what = asked.has_value() ? fmt::format("{}", fmt::join(*asked, " ")) : "other budgets";
  const auto refused = [&](const Status& why) {
    progress.line(str("asked for ", what, ", which is refused; training goes on as it was: ", why.message()));
    return Status::ok();
  };
  if (!asked.has_value()) return refused(asked.status());
  auto loaded = load_config(in_budgets(going.args, folder.path(), *asked));
  if (!loaded.has_value()) return refused(loaded.status());
  loaded->config.data.packing = workload.packing();
  if (const Status same =
          check_identity(run_identity(going.loaded.config, workload), run_identity(loaded->config, workload));
      !same.is_ok())
    return refused(same);
  const auto& now = going.loaded.config.memory;
  const auto& then = loaded->config.memory;
  if (then.device_bytes == now.device_bytes && then.pinned_bytes == now.pinned_bytes &&
      then.nvme_bytes == now.nvme_bytes)
    return {};
  auto planned = plan_job(*loaded, going.basis());
  if (!planned.has_value()) return refused(planned.status());
  if (const Status room = going.job->check_room(loaded->config, *planned->plan, going.io); !room.is_ok())
    return refused(room);
  if (const Status writes = trainer.may_go_on_in(*planned->plan); !writes.is_ok()) return refused(writes);
  STRATA_TRY_ASSIGN(const std::string saved, trainer.leave());
  if (const Status started = start_from(going, loaded->config, *planned->plan, saved); !started.is_ok()) {
    STRATA_TRY(start_from(going, going.loaded.config, *going.planned.plan, saved)
                   .annotate(str("going on in ", what, " failed (", started.message(),
                                 "), and as it was too; --resume ", folder.path(), " goes on from ", saved)));
    trainer.go_on_in(*going.job);
    progress.line(str("asked for ", what, ", which failed; training goes on as it was, from ", saved, ": ",
                      started.message()));
    return {};
  }
  going.planned = *std::move(planned);
  going.loaded = *std::move(loaded);
  resolve_late(going.loaded, folder.path(), workload);
  STRATA_TRY(folder.write(kResolvedConfig, run_config_toml(going.io, going.loaded.tree, folder.path())));
  STRATA_TRY(folder.write("plan.json",
                          plan_json(going.loaded.config, *going.planned.plan, going.planned.recompute)));
  trainer.go_on_in(*going.job);
  progress.line(str("going on in ", what, "\n",
                    start_table(going.loaded.config, going.planned, nvme_text(going.job->engine()))));
  return {};
}

// The template that conversations were written by: the tokenizer's own where it is that, else one made for
// it.
std::string chat_jinja(const TrainConfig& config, const Workload& workload) {
  const auto& [chosen, why, own] = config.data.chosen_chat;
  const Result<ChatTemplate> known = detect_chat_template(own);
  if (!chosen.has_value() || (known.has_value() && known->format == chosen->format)) return own;
  return own.empty() && !workload.has_conversations() ? std::string() : chat_template_jinja(*chosen);
}

// What a run keeps beside its configuration, so that it needs none of the folders it began with.
Result<std::map<std::string, std::string>> files_of_run(const TrainConfig& config, const Workload& workload,
                                                        bool resumes, Io& io) {
  constexpr std::uint64_t kLimit = std::uint64_t{64} << 20;
  std::map<std::string, std::string> files = {{"tokenizer.json", workload.tokenizer().to_json()}};
  if (std::string jinja = chat_jinja(config, workload); !jinja.empty())
    files["chat_template.jinja"] = std::move(jinja);
  if (resumes || config.model.from.empty()) return files;
  // What tells of tokens belongs to the tokenizer, which may be another than the model's own.
  const std::string tokenizer = tokenizer_source(config);
  const bool own_tokens =
      tokenizer == config.model.from || tokenizer == config.model.from + "/tokenizer.json";
  for (const char* name : kBaseFiles)
    if (const std::string path = str(config.model.from, "/", name);
        io.exists(path) && (own_tokens || std::string_view(name) == "config.json")) {
      STRATA_TRY_ASSIGN(files[str("base/", name)], read_text(io, path, kLimit));
    }
  return files;
}

Status still_wanted(const Signals& signals) {
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
  STRATA_TRY_ASSIGN(const std::unique_ptr<Workload> workload, Workload::open(config, io));
  STRATA_TRY(still_wanted(signals));
  if (!checkpoints.empty()) {
    STRATA_TRY_ASSIGN(const Manifest manifest, read_manifest(io, checkpoints.front()));
    if (const auto products = manifest.run.find(std::string(kProducts)); products != manifest.run.end())
      STRATA_TRY(settle_bf16_gemm_as(products->second, loaded));
    const auto identity = run_identity(config, *workload);
    STRATA_TRY(check_identity(manifest.run, identity).annotate(checkpoints.front()));
    if (const auto steps = manifest.run.find(std::string(kScheduleSteps));
        steps != manifest.run.end() && steps->second != identity.at(std::string(kScheduleSteps)))
      log->warn("train.steps was ", steps->second, " and is ", config.train.steps,
                ": the learning rate follows another curve from here on");
    const auto products_in = [](const std::map<std::string, std::string>& run) {
      const auto products = run.find(std::string(kProducts));
      return products == run.end() ? std::string("the CPU in f32") : products->second;
    };
    if (const std::string then = products_in(manifest.run), now = products_in(identity); then != now)
      log->warn("the checkpoint's run multiplied by ", then, ", this one by ", now,
                ": from here on bits differ from those of an uninterrupted run");
    if (config.memory.backend == "cuda") {
      const std::string file = str(path, "/", kProductChoices);
      STRATA_TRY_ASSIGN(const bool same, make_products_as_in(file, products_in(identity), io));
      if (!same)
        log->warn(file, " is not of ", products_in(identity),
                  ": algorithms of products are chosen anew, and bits may differ from those of before");
    }
    if (is_finished(manifest, config, path, io))
      return Outcome{
          Ending::finished, path,
          str(path, " is finished: ", manifest.step, " of ", config.train.steps, " steps; nothing to do\n")};
  }
  loaded.config.data.packing =
      workload->packing();  // whether rows hold several documents is part of the program
  resolve_backend(loaded);
  STRATA_TRY_ASSIGN(const CachedProfile machine,
                    profile_here(io, args.environment, config.memory.backend, config.cpu.share.threads()));
  const SteadyClock clock;
  const std::unique_ptr<Trace> trace = config.log.trace.empty() ? nullptr : std::make_unique<Trace>(clock);
  if (trace) trace->set_enabled(false);  // the trainer turns it on for the steps asked for
  Going going{args, loaded, machine, io, trace.get(), {}, {}};
  STRATA_TRY_ASSIGN(going.planned, plan_or_split(args, loaded, going.basis(),
                                                 [](const Args& given) { return load_config(given); }));
  STRATA_TRY(check_write_budget(config, *going.planned.plan));
  STRATA_TRY(still_wanted(signals));
  STRATA_TRY_ASSIGN(going.job, Job::start(config, *going.planned.plan, io, trace.get()));
  Job& job = *going.job;
  for (const std::string& note : start_notes(config)) print(args.out, note + "\n");
  for (const std::string& note : workload->notes()) print(args.out, str("data     ", note, "\n"));
  print(args.out, start_table(config, going.planned, nvme_text(job.engine())));
  if (const std::string note = job.engine().nvme_note();
      note != "not used" && note != "io_uring, O_DIRECT, registered buffers")
    log->warn("the nvme tier works below its best: ", note);
  log->debug(going.planned.plan->train.code.size(), " instructions a micro-batch, ",
             going.planned.plan->layout.n_chunks(), " chunks");

  if (!checkpoints.empty()) {
    const auto warn = [&](std::string_view text) { print(args.err, str("strata train: ", text, "\n")); };
    STRATA_TRY_ASSIGN(const std::string from, load_newest(job.engine(), checkpoints, io, warn));
    print(args.out, str("resuming from ", from, "\n"));
  } else {
    STRATA_TRY(first_values(job.engine(), config, io));
    if (!args.resume.empty())
      print(args.out, str(path, " holds no checkpoint yet: starting from the beginning\n"));
  }
  const ProgressOptions shown =
      progress_options(config.log.progress, config.log.every, isatty(fileno(args.out)) == 1, terminal_width(),
                       args.environment);
  STRATA_TRY(still_wanted(signals));
  resolve_late(loaded, path, *workload);
  STRATA_TRY_ASSIGN(const auto files, files_of_run(config, *workload, !args.resume.empty(), io));
  STRATA_TRY(folder->begin(job.engine().steps(), run_config_toml(io, loaded.tree, path), files));
  STRATA_TRY(folder->write("plan.json", plan_json(config, *going.planned.plan, going.planned.recompute)));

  // That of a run which this one overwrote, or what it starts in: not one that was made since.
  if (const BudgetRequest request(io, path);
      request.is_there() &&
      (args.resume.empty() || request.read().value_or(std::vector<std::string>()) == asked))
    STRATA_TRY(request.take().status());
  StreamSink sink(args.out);
  Progress progress(sink, shown);
  Trainer trainer(config, job, *workload, *folder, progress, signals, io, trace.get());
  STRATA_TRY_ASSIGN(TrainOutcome outcome, trainer.run());
  while (outcome.ending == Ending::rebudget) {
    STRATA_TRY(change_budgets(going, trainer, *workload, *folder, progress));
    STRATA_TRY_ASSIGN(outcome, trainer.run());
  }
  const Expectation expected = expectation_of(*going.planned.plan, going.planned.forecast, machine, outcome);
  progress.finish();
  if (trace) STRATA_TRY(trace->write(io, folder->file("trace.json")));
  STRATA_TRY(folder->write("summary.json", summary_json(outcome, job.engine(), *workload,
                                                        config.io.write_budget_bytes, expected)));
  return Outcome{outcome.ending, path, summary_text(outcome, job.engine(), *folder, expected),
                 outcome.why_stopped};
}

}  // namespace

namespace {

// Everything behind the lock: a run that trains is not touched by a second command.
Result<Outcome> train(const Args& args, Signals& signals) {
  Io& io = posix_io();
  std::unique_ptr<RunFolder> folder;
  const auto lock = [&](const std::string& path) -> Status {
    STRATA_TRY_ASSIGN(folder, RunFolder::open(io, path, opening_of(args)));
    return {};
  };
  if (!args.resume.empty()) STRATA_TRY(lock(args.resume));
  // What it was asked for since it last trained, unless the command line says otherwise.
  std::vector<std::string> asked;
  if (const BudgetRequest request(io, args.resume); !args.resume.empty() && request.is_there())
    asked = request.read().value_or(asked);  // else the trainer takes it, and refuses it
  Args given = completed(args, asked);
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
