#include <strata/plan/starter_config.h>

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <strata/config/load_config.h>
#include <strata/model/hf/model_files.h>
#include <strata/profile/model_shapes.h>
#include <strata/runtime/config/json.h>
#include <strata/profile/compute_device.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>
#include <strata/plan/plan_text.h>
#include <strata/config/task.h>

namespace strata {
namespace {

constexpr int kSequences = 16;          // sequences of a step
constexpr std::size_t kMaxListed = 20;  // files; more stay a pattern

using Assignments = std::vector<std::string>;

// The model, and how long its sequences are: the data decide that of a folder.
Result<Assignments> model_keys(const StarterAnswers& answers, const std::vector<std::string>& environment) {
  constexpr std::int64_t kSeq = 1024, kSmallSeq = 256;
  constexpr double kSmall = 5e7;
  if (model_file_exists(posix_io(), answers.model + "/config.json")) {
    Assignments keys = {str("model.from=", answers.model)};
    STRATA_TRY(load_config({.items = keys, .environment = environment}).status());
    return keys;
  }
  auto parameters = parse_parameter_count(answers.model);
  if (!parameters.has_value())
    return Status::error(Code::invalid,
                         str("the model ", answers.model, " is neither a Hugging Face folder (there is no ",
                             answers.model, "/config.json) nor a size such as 5m, 125m or 1.3b"));
  STRATA_TRY_ASSIGN(Assignments keys, llama_settings_for(*parameters));
  keys.push_back(str("model.seq=", *parameters < kSmall ? kSmallSeq : kSeq));
  return keys;
}

// A tenth of a folder's free space stays free.
Result<Assignments> memory_keys(const StarterAnswers& answers) {
  if (answers.nvme_dir.empty()) return Assignments{};
  STRATA_TRY(posix_io().make_dirs(answers.nvme_dir));
  STRATA_TRY_ASSIGN(const std::uint64_t free, posix_io().free_bytes(answers.nvme_dir));
  return Assignments{str("memory.nvme_dir=", answers.nvme_dir), str("memory.nvme=", free / 10 * 9)};
}

// The last one of several files is for validation.
Result<Assignments> data_keys(const StarterAnswers& answers, const std::vector<std::string>& environment) {
  const Assignments all = {str("data.train=", answers.data)};
  STRATA_TRY_ASSIGN(const LoadedConfig loaded, load_config({.items = all, .environment = environment}));
  std::vector<std::string> files = loaded.config.data.train;
  if (files.size() < 2 || files.size() > kMaxListed) return all;
  const std::string last = files.back();
  files.pop_back();
  return Assignments{fmt::format("data.train={}", fmt::join(files, ",")), str("data.val=", last)};
}

constexpr const char* kRunKeys[] = {"train.dtype=bf16", "optim.schedule=cosine", "checkpoint.every=100",
                                    "checkpoint.keep=3", "log.report_every=60s"};
constexpr const char* kScratchKeys[] = {"train.steps=500", "optim.warmup=50"};

/// A planned run of one task, with the micro-batch that was chosen.
struct Candidate {
  LoadedConfig loaded;
  PlannedJob job;
  double step_s() const { return job.forecast ? job.forecast->step_s : 0; }
};

// The fastest micro-batch that fits. Nothing if none does.
Result<std::optional<Candidate>> best_of(const Assignments& keys, const std::string& task,
                                         const std::vector<std::string>& environment,
                                         const MachineProfile* profile, Status& refusal) {
  std::optional<Candidate> best;
  for (const int micro_batch : {8, 4, 2, 1}) {
    ConfigRequest request{.items = keys, .task = task, .environment = environment};
    request.items.push_back(str("train.micro_batch=", micro_batch));
    request.items.push_back(str("train.grad_accum=", kSequences / micro_batch));
    STRATA_TRY_ASSIGN(LoadedConfig loaded, load_config(request));
    resolve_backend(loaded);
    auto job = plan_job(loaded, {.profile = profile, .explain_refusal = micro_batch == 1});
    if (!job.has_value() && job.status().code() != Code::does_not_fit) return job.status();
    if (!job.has_value()) {
      refusal = job.status();
      continue;
    }
    Candidate candidate{std::move(loaded), *std::move(job)};
    if (!best || candidate.step_s() < best->step_s()) best = std::move(candidate);
  }
  return best;
}

/// The keys of a file, one section after the other.
constexpr std::string_view kShown[] = {
    "model.from",       "model.family",    "model.layers",    "model.hidden",      "model.heads",
    "model.ffn",        "model.vocab",     "model.seq",       "data.train",        "data.val",
    "adapter.method",   "adapter.rank",    "adapter.alpha",   "adapter.targets",   "train.base",
    "train.dtype",      "train.steps",     "train.epochs",    "train.micro_batch", "train.grad_accum",
    "train.recompute",  "optim.lr",        "optim.warmup",    "optim.schedule",    "optim.weight_decay",
    "memory.backend",   "memory.device",   "memory.pinned",   "memory.nvme",       "memory.nvme_dir",
    "checkpoint.every", "checkpoint.keep", "log.report_every"};

// A folder has the sizes of its model, and only adapters have keys of adapters.
bool is_shown(const TrainConfig& config, std::string_view key) {
  if (key == "model.from") return !config.model.from.empty();
  if (key == "train.epochs") return config.train.epochs.has_value();
  if (key == "train.steps") return !config.train.epochs.has_value();
  if (key.starts_with("model.") && key != "model.seq") return config.model.from.empty();
  if (key.starts_with("adapter.") || key == "train.base")
    return trained_part(config) == TrainedPart::adapters;
  if (key == "data.val") return !config.data.val.empty();
  if (key.starts_with("memory.nvme")) return config.memory.nvme_bytes > 0;
  return true;
}

// Bytes in whole MiB, unless less than `needed` would be left.
std::string budget_text(std::uint64_t bytes, std::uint64_t needed) {
  if (bytes == kUnlimited) return "\"unlimited\"";
  const std::uint64_t whole = bytes / kMiB * kMiB;
  return whole < needed || whole == 0 ? str(bytes) : str("\"", whole / kMiB, "MiB\"");
}

// "key = value" of every key, by section.key.
std::string value_text(const Candidate& run, std::string_view key) {
  const RunPlan& plan = *run.job.plan;
  for (std::size_t t = 0; t < kTiers; ++t)
    if (key == str("memory.", to_string(static_cast<Tier>(t))))
      return budget_text(plan.options.budgets[t], plan.planned_peak[t]);
  if (key == "data.train" && run.loaded.config.data.train.size() > kMaxListed)
    return str("[", json_string(run.loaded.tree.entry(key).raw), "]");
  const std::string toml = run.loaded.tree.to_toml(false);
  const std::size_t dot = key.find('.');
  const std::size_t section = toml.find(str("[", key.substr(0, dot), "]\n"));
  const std::string line = str("\n", key.substr(dot + 1), " = ");
  const std::size_t at = toml.find(line, section) + line.size();
  return toml.substr(at, toml.find('\n', at) - at);
}

std::string render(const Candidate& run, const std::string& head) {
  std::string toml = head, section;
  for (const std::string_view key : kShown) {
    if (!is_shown(run.loaded.config, key)) continue;
    const std::string of(key.substr(0, key.find('.')));
    if (of != std::exchange(section, of)) toml += str("\n[", of, "]\n");
    const ConfigEntry& entry = run.loaded.tree.entry(key);
    const std::string line = str(entry.spec->name, " = ", value_text(run, key));
    toml += fmt::format("{:<32}  # {}\n", line, entry.spec->doc);
  }
  return toml;
}

}  // namespace

std::string starter_backend() { return usable_gpu().has_value() ? "cuda" : "host"; }

Result<StarterConfig> make_starter_config(const StarterAnswers& answers,
                                          const std::vector<std::string>& environment,
                                          const MachineProfile* profile) {
  STRATA_TRY_ASSIGN(Assignments keys, model_keys(answers, environment));
  STRATA_TRY_ASSIGN(const Assignments memory, memory_keys(answers));
  STRATA_TRY_ASSIGN(const Assignments data, data_keys(answers, environment));
  const bool from_scratch = keys.front().starts_with("model.family");
  for (const Assignments& more : {data, memory}) keys.insert(keys.end(), more.begin(), more.end());
  keys.insert(keys.end(), std::begin(kRunKeys), std::end(kRunKeys));
  if (from_scratch) keys.insert(keys.end(), std::begin(kScratchKeys), std::end(kScratchKeys));
  keys.push_back(str("memory.backend=", starter_backend()));
  std::vector<std::string> tasks;
  if (answers.task != "auto") tasks.push_back(answers.task);
  for (const TrainTask& task : train_tasks())
    if (answers.task == "auto" && (!from_scratch || task.name == "full")) tasks.emplace_back(task.name);
  Status refusal;
  for (const std::string& task : tasks) {
    STRATA_TRY_ASSIGN(std::optional<Candidate> best, best_of(keys, task, environment, profile, refusal));
    if (!best) continue;
    StarterConfig made;
    made.task = task;
    made.step_s = best->step_s();
    if (made.step_s > 0) made.tokens_per_s = tokens_per_step(best->loaded.config) / made.step_s;
    std::string head = str("# ", task, " training on this machine",
                           profile == nullptr ? std::string() : str(" (", profile->name, ")"));
    if (made.step_s > 0)
      head +=
          fmt::format(": {:.3g} s a step, {:.4g} tokens/s by the forecast", made.step_s, made.tokens_per_s);
    made.toml =
        render(*best, head +
                          ".\n# strata config explain KEY says more of a key; strata config reference lists "
                          "all keys.\n");
    made.loaded = std::move(best->loaded);
    made.job = std::move(best->job);
    return made;
  }
  return refusal;
}

}  // namespace strata
