#include <strata/config/implied_values.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include <strata/config/objectives.h>
#include <strata/config/train_config.h>
#include <strata/config/train_schema.h>
#include <strata/runtime/str.h>

#include <strata/config/run_paths.h>

namespace strata::detail {
namespace {

/// The part of a folder's model that is fine-tuned.
enum class Tuning : std::uint8_t { none, parameters, matrices };  // matrices: of adapters

// A run with states is no fine-tuning: it goes on where another trainer ended.
Tuning tuning(std::string_view from, std::string_view states, std::string_view objective,
              std::string_view method) {
  if (from.empty() || !states.empty() || objective != "lm") return Tuning::none;
  if (method == "none") return Tuning::parameters;
  return method == "lora" || method == "series" || method == "parallel" ? Tuning::matrices : Tuning::none;
}

// As in the recipes of TRL, LLaMA-Factory and torchtune.
const char* rate_of(Tuning what) {
  return what == Tuning::parameters ? "2e-5" : what == Tuning::matrices ? "2e-4" : nullptr;
}

struct Implied {
  const char *key, *value;  ///< if the key has this value,
  const char *other, *is;   ///< the other one has this default
};
constexpr Implied kImplied[] = {
    {"optim.name", "galore", "optim.weight_decay", "0"},  // matrices do not decay
    {"parallel.zero", "1", "parallel.reduce", "once"},    // whole gradients are added once a step
};

constexpr std::int64_t kSeq = 128, kSteps = 1000, kWarmup = 50;  // for runs that start from random values
constexpr double kWarmupShare = 0.03;                            // for fine-tuning

int precedence(std::string_view origin) {
  constexpr std::array<std::string_view, 3> kLater = {"file ", "environment ", "argument "};
  for (std::size_t i = 0; i < kLater.size(); ++i)
    if (origin.starts_with(kLater[i])) return static_cast<int>(i) + 2;
  return origin == "default" ? 0 : 1;  // else a preset or a task
}

// A run with states is no fine-tuning: it goes on where another trainer ended.
bool is_tuned(const ConfigTree& tree) {
  return !tree.text("model.from").empty() && tree.text("model.states").empty();
}
bool samples(const ConfigTree& tree) {
  return objective_named(tree.text("train.objective")).data == RunData::prompts;
}

std::int64_t share_of(double ratio, std::int64_t steps) {
  return static_cast<std::int64_t>(std::ceil(ratio * static_cast<double>(steps)));
}

}  // namespace

Status add_implied_values(ConfigSources& sources, ConfigTree& tree) {
  const auto add = [&](const char* key, const char* value, const std::string& why) {
    if (tree.entry(key).origin != "default") return;
    sources.discovered.push_back({why, {{key, value}}});
  };
  const std::size_t before = sources.discovered.size();
  for (const Implied& each : kImplied)
    if (tree.entry(each.key).raw == each.value) add(each.other, each.is, str(each.key, " = ", each.value));
  const Tuning what = tuning(tree.text("model.from"), tree.text("model.states"), tree.text("train.objective"),
                             tree.text("adapter.method"));
  if (const char* const rate = rate_of(what)) {
    const std::string why = "fine-tuning of model.from";
    add("optim.lr", rate, why);
    add("optim.min_lr_ratio", "0", why);
    if (tree.text("optim.name") != "galore") add("optim.weight_decay", "0", why);
  }
  if (sources.discovered.size() == before) return {};
  STRATA_TRY_ASSIGN(tree, ConfigTree::build(train_schema(), sources));
  return {};
}

double implied_rate(const TrainConfig& config) {
  const char* const rate =
      rate_of(tuning(config.model.from, config.model.states, config.train.objective, config.adapter.method));
  return rate == nullptr ? 0 : std::strtod(rate, nullptr);
}

Status choose_run_length(ConfigSources& sources, ConfigTree& tree) {
  if (tree.is_auto("train.steps") || tree.is_auto("train.epochs")) return {};
  const ConfigEntry &steps = tree.entry("train.steps"), &epochs = tree.entry("train.epochs");
  const int of_steps = precedence(steps.origin), of_epochs = precedence(epochs.origin);
  const bool is_of_run = !run_of_origin(steps.origin).empty();  // whose steps are what its epochs were
  if (of_epochs < of_steps || (of_epochs == of_steps && is_of_run)) return {};
  if (of_epochs == of_steps)
    return Status::error(Code::invalid, str(epochs.origin, ": train.epochs = ", epochs.raw, ", but ",
                                            steps.origin, " has train.steps = ", steps.raw,
                                            ": both say how long the run is; leave one out"));
  sources.arguments.emplace_back("train.steps=auto");
  STRATA_TRY_ASSIGN(tree, ConfigTree::build(train_schema(), sources));
  return {};
}

Status decide_without_data(ConfigTree& tree) {
  if (tree.is_auto("model.seq") && (!is_tuned(tree) || samples(tree)))
    tree.resolve("model.seq", kSeq, "a run from random values, or of sampled answers");
  if (tree.is_auto("train.steps")) {
    if (!tree.is_auto("train.epochs") && samples(tree))
      return Status::error(Code::unsupported,
                           str("train.epochs = ", tree.entry("train.epochs").raw,
                               ", but a run of train.objective = ", tree.text("train.objective"),
                               " samples its answers; set train.steps"));
    if (!tree.is_auto("train.epochs")) return {};
    if (is_tuned(tree) && !samples(tree)) {
      const bool is_text = tree.text("train.objective") == "lm";
      tree.resolve("train.epochs", is_text ? 3.0 : 1.0, is_text ? "fine-tuning" : "comparing pairs");
      return {};
    }
    tree.resolve("train.steps", kSteps, "neither steps nor epochs are given");
  }
  decide_warmup(tree, tree.integer("train.steps"));
  return {};
}

void decide_warmup(ConfigTree& tree, std::int64_t steps) {
  if (!tree.is_auto("optim.warmup")) return;
  if (!tree.is_auto("optim.warmup_ratio"))
    tree.resolve("optim.warmup", share_of(tree.number("optim.warmup_ratio"), steps), "optim.warmup_ratio");
  else if (is_tuned(tree))
    tree.resolve("optim.warmup", share_of(kWarmupShare, steps), "3 % of the steps");
  else
    tree.resolve("optim.warmup", kWarmup, "a run from random values");
}

}  // namespace strata::detail
