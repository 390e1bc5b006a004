#include <bit>

#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>
#include <strata/config/objective.h>
#include <strata/plan/job.h>
#include <strata/config/load_config.h>
#include <strata/batches/run_length.h>
#include <strata/train/subspaces/schedule.h>
#include <strata/batches/training_data.h>

#include "exit_code.h"
#include "print.h"
#include "verbs/offload_overhead.h"
#include "verbs/verify_variants.h"
#include "verbs/verbs.h"

// Checks contract C1 on the user's own model: results have the same bits wherever the states are placed.
namespace strata::cli {
namespace {

struct Bits {
  std::vector<std::uint32_t> losses;
  std::string digest;
};

Result<Bits> run_variant(const Args& args, const VerifyVariant& variant, const TrainingData& training_data,
                         std::int64_t steps) {
  std::vector<std::string> overrides = variant.overrides;
  overrides.emplace_back("parallel.ranks=1");
  STRATA_TRY_ASSIGN(LoadedConfig loaded, load_config(with_overrides(args, overrides)));
  decide_by_data(loaded, training_data);
  STRATA_TRY_ASSIGN(const PlannedJob planned, plan_job(loaded));
  STRATA_TRY_ASSIGN(const std::unique_ptr<Job> job, Job::start(loaded.config, *planned.plan, posix_io()));
  STRATA_TRY(job->engine().initialize(loaded.config.train.seed));
  const std::unique_ptr<MicroBatches> batches = training_data.train_batches(loaded.config.train.micro_batch);
  Bits bits;
  SubspaceSchedule subspaces(loaded.config);
  for (std::int64_t step = 0; step < steps; ++step) {
    StepReport report;
    STRATA_TRY(subspaces.before_step(job->engine(), *batches).status());
    STRATA_TRY(job->engine().train_step(*batches, loaded.config.optim.lr, report));
    bits.losses.push_back(std::bit_cast<std::uint32_t>(report.loss));
  }
  STRATA_TRY_ASSIGN(bits.digest, job->engine().state_digest());
  return bits;
}

std::string compare(const Bits& want, const Bits& got) {
  for (std::size_t i = 0; i < want.losses.size(); ++i)
    if (want.losses[i] != got.losses[i])
      return fmt::format("DIFFERS at step {}: loss {:08x}, the first placement has {:08x}", i + 1,
                         got.losses[i], want.losses[i]);
  if (want.digest != got.digest) return "DIFFERS: equal losses, different states (" + got.digest + ")";
  return "identical";
}

// Runs and compares all variants in order, and prints the results. Returns false if any differs.
Result<bool> verify(const Args& args, const TrainConfig& config) {
  STRATA_TRY_ASSIGN(const std::unique_ptr<TrainingData> training_data,
                    TrainingData::open(config, posix_io()));
  Bits first;
  bool all = true;
  std::string json;
  std::size_t n = 0;
  for (const VerifyVariant& variant : verify_variants()) {
    auto outcome = run_variant(args, variant, *training_data, args.steps);
    if (!outcome.has_value()) return outcome.status().annotate(variant.name);
    const Bits& bits = *outcome;
    if (n++ == 0) first = bits;
    const std::string verdict = compare(first, bits);
    all = all && verdict == "identical";
    if (args.json) {
      json += fmt::format(
          "{}  {{\"placement\": \"{}\", \"state_digest\": \"{}\", \"last_loss_bits\": \"{:08x}\", "
          "\"identical\": {}}}",
          json.empty() ? "" : ",\n", variant.name, bits.digest, bits.losses.back(), verdict == "identical");
    } else {
      print(args.out,
            fmt::format("  {:<34} {}  {:08x}  {}\n", variant.name, bits.digest, bits.losses.back(), verdict));
    }
  }
  if (args.json)
    print(args.out, "[\n" + json + "\n]\n");
  else
    print(args.out, fmt::format("{}, {}: {}\n", plural(n, "placement"), plural(args.steps, "step"),
                                all ? "all losses and states have the same bits" : "the bits DIFFER"));
  return all;
}

Status print_offload_overhead(const Args& args, const TrainConfig& config) {
  STRATA_TRY_ASSIGN(const std::unique_ptr<TrainingData> training_data,
                    TrainingData::open(config, posix_io()));
  STRATA_TRY_ASSIGN(const OffloadOverhead result, measure_offload_overhead(args, *training_data));
  print(args.out, args.json ? offload_overhead_json(result) : offload_overhead_text(result));
  return Status::ok();
}

}  // namespace

int run_verify(const Args& args) {
  const auto loaded = load_config(args);
  if (!loaded.has_value()) return print_error(args, "verify", loaded.status());
  if (args.steps < 1)
    return print_error(
        args, "verify",
        Status::error(Code::invalid, str("--steps is ", args.steps, "; it must be at least 1")));
  if (objective_of(loaded->config).data == RunData::prompts)
    return print_error(
        args, "verify",
        Status::error(Code::unsupported,
                      str("train.objective = ", loaded->config.train.objective,
                          " learns from answers that it samples, which strata verify does not; "
                          "train twice with --out and compare them by strata compare")));
  if (args.offload_overhead) {
    const Status status = print_offload_overhead(args, loaded->config);
    return status.is_ok() ? kExitOk : print_error(args, "verify", status);
  }
  const auto same = verify(args, loaded->config);
  if (!same.has_value()) return print_error(args, "verify", same.status());
  return *same ? kExitOk : kExitInternal;
}

}  // namespace strata::cli
