#include <strata/engine/checkpoint.h>
#include <strata/runtime/str.h>

#include "exit_code.h"
#include "load_config.h"
#include "training/job.h"
#include "training/sampler.h"
#include "training/workload.h"
#include "verbs/verbs.h"

namespace strata::cli {
namespace {

Result<std::unique_ptr<const RunPlan>> plan_inference(const TrainConfig& config) {
  ProgramSet programs;
  STRATA_TRY_ASSIGN(programs.infer, record_decoder(decoder_config(config), 1, DecoderHead::logits));
  return Engine::plan(programs, EngineOptions{});
}

Result<std::string> generate(const Args& args, const TrainConfig& config, const std::string& run) {
  Io& io = posix_io();
  STRATA_TRY_ASSIGN(const Tokenizer tokenizer, Tokenizer::load(io, run + "/tokenizer.json"));
  STRATA_TRY_ASSIGN(const std::string checkpoint, newest_checkpoint(io, config.checkpoint.dir.empty() ? run + "/checkpoints" : config.checkpoint.dir));
  STRATA_TRY_ASSIGN(const std::unique_ptr<const RunPlan> plan, plan_inference(config));
  STRATA_TRY_ASSIGN(const std::unique_ptr<Job> job, Job::start(config, *plan, io));
  STRATA_TRY(load_checkpoint(job->engine(), io, checkpoint).status());
  const SampleOptions options{args.tokens, args.temperature, args.top_k, static_cast<std::uint64_t>(args.seed)};
  STRATA_TRY_ASSIGN(const std::string text, sample_text(job->engine(), tokenizer, args.prompt, options));
  return args.prompt + text + "\n";
}

}  // namespace

int run_generate(const Args& args) {
  if (args.items.size() != 1) return print_error(args, "generate", Status::error(Code::invalid, "name one run folder: strata generate runs/demo --prompt \"Elizabeth \""));
  Args given = args;
  const std::string run = args.items.front();
  given.items = {run + "/config.resolved.toml"};
  const auto loaded = load_config(given);
  if (!loaded.has_value()) return print_error(args, "generate", loaded.status());
  const auto text = generate(args, loaded->config, run);
  if (!text.has_value()) return print_error(args, "generate", text.status());
  print(args.out, *text);
  return kExitOk;
}

}  // namespace strata::cli
