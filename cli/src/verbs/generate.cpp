#include <algorithm>

#include <strata/model/hf/folder.h>
#include <strata/runtime/host_backend.h>
#include <strata/runtime/str.h>
#include <strata/runtime/topology.h>

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

constexpr std::int64_t kLongestContext = 1024;

/// An engine that only infers, with all of a folder's model in memory.
struct FolderEngine {
  std::unique_ptr<const RunPlan> plan;
  SteadyClock clock;
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Engine> engine;
};

Result<std::unique_ptr<FolderEngine>> engine_of(Io& io, const std::string& path) {
  STRATA_TRY_ASSIGN(const std::unique_ptr<HfFolder> folder, HfFolder::open(io, path));
  DecoderConfig decoder = folder->config();
  decoder.seq = decoder.positions > 0 ? std::min(decoder.positions, kLongestContext) : kLongestContext;
  ProgramSet programs;
  STRATA_TRY_ASSIGN(programs.infer, record_decoder(decoder, 1, DecoderHead::logits));
  auto made = std::make_unique<FolderEngine>();
  STRATA_TRY_ASSIGN(made->plan, Engine::plan(programs, {}));
  const auto topology = read_topology();
  STRATA_TRY_ASSIGN(made->pool, ThreadPool::create(topology ? topology->usable_threads : 1));
  STRATA_TRY_ASSIGN(made->backend, create_host_backend({}, *made->pool, made->clock));
  STRATA_TRY_ASSIGN(made->engine,
                    Engine::create(*made->plan, {*made->backend, *made->pool, made->clock, io}));
  STRATA_TRY(made->engine->initialize(0));
  STRATA_TRY(made->engine->fill(Payload::param, [&](const StatePiece& piece, std::span<float> values) {
    return folder->read_part(piece.name, piece.offset, values);
  }));
  return made;
}

Result<std::string> generate_from_folder(const Args& args, const std::string& path) {
  Io& io = posix_io();
  STRATA_TRY_ASSIGN(const Tokenizer tokenizer, Tokenizer::load(io, path + "/tokenizer.json"));
  STRATA_TRY_ASSIGN(const std::unique_ptr<FolderEngine> made, engine_of(io, path));
  const SampleOptions options{args.tokens, args.temperature, args.top_k,
                              static_cast<std::uint64_t>(args.seed)};
  STRATA_TRY_ASSIGN(const std::string text, sample_text(*made->engine, tokenizer, args.prompt, options));
  return args.prompt + text + "\n";
}

int print_text(const Args& args, const Result<std::string>& text) {
  if (!text.has_value()) return print_error(args, "generate", text.status());
  print(args.out, *text);
  return kExitOk;
}

}  // namespace

int run_generate(const Args& args) {
  if (args.items.size() != 1)
    return print_error(
        args, "generate",
        Status::error(
            Code::invalid,
            "name one run or Hugging Face folder: strata generate runs/demo --prompt \"Elizabeth \""));
  Args given = args;
  const std::string run = args.items.front();
  if (posix_io().exists(run + "/config.json")) return print_text(args, generate_from_folder(args, run));
  given.items = {run + "/config.resolved.toml"};
  if (const Status there = RunFolder::check(posix_io(), run, RunFolder::Opening::resume); !there.is_ok())
    return print_error(args, "generate", there);
  auto loaded = load_config(given);
  if (!loaded.has_value()) return print_error(args, "generate", loaded.status());
  return print_text(args, generate(args, *loaded, run));
}

}  // namespace strata::cli
