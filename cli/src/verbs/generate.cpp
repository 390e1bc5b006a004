#include <strata/runtime/str.h>

#include "exit_code.h"
#include "load_config.h"
#include "training/job.h"
#include "training/resume.h"
#include "training/run_folder.h"
#include "training/sampler.h"
#include "training/workload.h"
#include "verbs/verbs.h"

namespace strata::cli {
namespace {

// The run's own plan: what it could train with holds it now too.
Result<std::string> generate(const Args& args, LoadedConfig& loaded, const std::string& run) {
  Io& io = posix_io();
  STRATA_TRY_ASSIGN(const Tokenizer tokenizer, Tokenizer::load(io, run + "/tokenizer.json"));
  if (args.prompt.empty())
    return Status::error(Code::invalid, "--prompt is empty; give at least one character to continue");
  STRATA_TRY_ASSIGN(const std::vector<std::string> checkpoints, checkpoints_of(loaded.config, run, io));
  if (checkpoints.empty())
    return Status::error(Code::not_found,
                         str(run, " holds no checkpoint yet in ", checkpoint_dir(loaded.config, run)));
  STRATA_TRY_ASSIGN(const PlannedJob planned, plan_job(loaded));
  STRATA_TRY_ASSIGN(const std::unique_ptr<Job> job, Job::start(loaded.config, *planned.plan, io));
  const auto warn = [&](std::string_view text) { print(args.err, str("strata generate: ", text, "\n")); };
  STRATA_TRY(load_newest(job->engine(), checkpoints, io, warn).status());
  const SampleOptions options{args.tokens, args.temperature, args.top_k,
                              static_cast<std::uint64_t>(args.seed)};
  STRATA_TRY_ASSIGN(const std::string text, sample_text(job->engine(), tokenizer, args.prompt, options));
  return args.prompt + text + "\n";
}

}  // namespace

int run_generate(const Args& args) {
  if (args.items.size() != 1)
    return print_error(
        args, "generate",
        Status::error(Code::invalid,
                      "name one run folder: strata generate runs/demo --prompt \"Elizabeth \""));
  Args given = args;
  const std::string run = args.items.front();
  given.items = {run + "/config.resolved.toml"};
  if (const Status there = RunFolder::check(posix_io(), run, RunFolder::Opening::resume); !there.is_ok())
    return print_error(args, "generate", there);
  auto loaded = load_config(given);
  if (!loaded.has_value()) return print_error(args, "generate", loaded.status());
  const auto text = generate(args, *loaded, run);
  if (!text.has_value()) return print_error(args, "generate", text.status());
  print(args.out, *text);
  return kExitOk;
}

}  // namespace strata::cli
