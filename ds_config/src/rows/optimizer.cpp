#include <algorithm>
#include <cctype>
#include <string>

#include <strata/runtime/str.h>

#include "conversions.h"

namespace strata::detail {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

/// The name of DeepSpeed's optimizer in lower case; empty if there is none.
std::string type_of(const Document& document) {
  const Json* const type = document.value("optimizer.type");
  return type != nullptr && type->is_string() ? lower(type->get<std::string>()) : std::string();
}

/// DeepSpeed's Adam decouples the weight decay unless it is told not to.
bool is_decoupled(const Document& document) {
  const Json* const mode = document.value("optimizer.params.adam_w_mode");
  return type_of(document) == "adamw" || mode == nullptr || *mode != false;
}

/// Strata's name; empty if it has none that computes the same.
std::string_view strata_name(const Document& document) {
  const std::string type = type_of(document);
  if (type == "adam" || type == "adamw") return is_decoupled(document) ? "adamw" : "adam";
  for (const std::string_view same : {"lion", "adagrad", "sgd"})
    if (type == same) return same;
  return {};
}

Outcome type(const TableRow&, const Json& value, const Document& document) {
  if (const std::string_view name = strata_name(document); !name.empty())
    return taken("optim.name", name,
                 type_of(document) == "adam" && name == "adamw"
                     ? "DeepSpeed's Adam decouples the weight decay unless adam_w_mode is false"
                     : "");
  if (type_of(document) == "lamb")
    return refused(
        "DeepSpeed's Lamb limits the norms' ratio of a tensor to 0.01 to 10, optim.name=lamb does not");
  if (!value.is_string()) return refused("it must be the name of an optimizer");
  return refused(
      str("strata has no ", value.get<std::string>(), "; strata config explain optim.name lists its own"));
}

Outcome lr(const TableRow& row, const Json& value, const Document& document) {
  if (const Json* const by = document.value("scheduler.params.warmup_max_lr"); by != nullptr && *by != value)
    return meaningless("scheduler.params.warmup_max_lr sets the rate");
  return to_number(row, value, document);
}

Outcome betas(const TableRow& row, const Json& value, const Document& document) {
  if (type_of(document) == "adagrad" || type_of(document) == "sgd")
    return meaningless("this optimizer has none");
  if (!value.is_array() || value.size() != 2) return refused("it must be a list of two numbers");
  Outcome outcome;
  for (std::size_t i = 0; i < 2; ++i) {
    if (!value[i].is_number() || value[i].get<double>() < row.min || value[i].get<double>() > row.max)
      return refused(str("it must be two numbers from ", row.min, " to below 1"));
    outcome.settings.push_back({i == 0 ? "optim.beta1" : "optim.beta2", value[i].dump()});
  }
  return outcome;
}

Outcome fp32_states(const TableRow&, const Json& value, const Document& document) {
  if (!value.is_boolean()) return not_a_boolean();
  if (value == true) return taken("offload.states", "fp32");
  if (document.is_true("fp16.enabled")) return refused("strata does not store moments in f16");
  return taken("offload.states", "bf16", "moments of 2 bytes, which strata rounds at random");
}

Outcome boolean(const TableRow& row, const Json& value, const Document&) {
  return value.is_boolean() ? taken(first_key(row), value) : not_a_boolean();
}

constexpr std::string_view kNormRatio = "strata's lamb does not limit the ratio of the norms of a tensor";
constexpr TableRow kOptimizerRows[] = {
    {{"optimizer.type", DsVerdict::taken, "optim.name", "the same update"}, type},
    {{"optimizer.params.lr", DsVerdict::taken, "optim.lr", "the peak of the schedule"}, lr, {}, 0, 1e6},
    {{"optimizer.params.betas", DsVerdict::taken, "optim.beta1 optim.beta2", "decays of the moments"},
     betas,
     {},
     0,
     0.999999999},
    {{"optimizer.params.eps", DsVerdict::taken, "optim.eps", "added to the root of the second moment"},
     to_number,
     {},
     1e-38,
     1},
    {{"optimizer.params.weight_decay", DsVerdict::taken, "optim.weight_decay",
      "norms and biases have none, as with the Hugging Face Trainer; see optim.param_groups"},
     to_number,
     {},
     0,
     1e6},
    {{"optimizer.params.momentum", DsVerdict::taken, "optim.momentum", "of sgd"},
     to_number,
     {},
     0,
     0.999999999},
    {{"optimizer.params.nesterov", DsVerdict::taken, "optim.nesterov", "of sgd"}, boolean},
    {{"optimizer.params.fp32_optimizer_states", DsVerdict::taken, "offload.states", "4 bytes per moment"},
     fp32_states},
    {{"optimizer.params.adam_w_mode", DsVerdict::meaningless, "optim.name", "optimizer.type says it"}},
    {{"optimizer.params.torch_adam", DsVerdict::meaningless, "", "the formula is the same"}},
    {{"optimizer.params.foreach", DsVerdict::meaningless, "", "the formula is the same"}},
    {{"optimizer.params.fused", DsVerdict::meaningless, "", "the formula is the same"}},
    {{"optimizer.params.set_grad_none", DsVerdict::meaningless, "",
      "gradients are given back by themselves"}},
    {{"optimizer.params.bias_correction", DsVerdict::refused, "", "strata always corrects the bias"},
     nullptr,
     "true"},
    {{"optimizer.params.amsgrad", DsVerdict::refused, "", "strata does not keep the maximum of v"},
     nullptr,
     "false"},
    {{"optimizer.params.maximize", DsVerdict::refused, "", "strata minimizes"}, nullptr, "false"},
    {{"optimizer.params.dampening", DsVerdict::refused, "", "strata's sgd has none"}, nullptr, "0"},
    {{"optimizer.params.lr_decay", DsVerdict::refused, "optim.schedule", "strata's adagrad has none"},
     nullptr,
     "0"},
    {{"optimizer.params.initial_accumulator_value", DsVerdict::refused, "", "strata's adagrad starts at 0"},
     nullptr,
     "0"},
    {{"optimizer.params.max_grad_norm", DsVerdict::refused, "optim.clip", "DeepSpeed: use gradient_clipping"},
     nullptr,
     "0"},
    {{"optimizer.params.max_coeff", DsVerdict::refused, "", kNormRatio}},
    {{"optimizer.params.min_coeff", DsVerdict::refused, "", kNormRatio}},
    {{"optimizer.params.eps_inside_sqrt", DsVerdict::refused, "", "strata adds eps to the root"},
     nullptr,
     "false"},
    {{"optimizer.params.freeze_step", DsVerdict::refused, "",
      "strata does not compress what ranks exchange"}},
    {{"optimizer.params.cuda_aware", DsVerdict::meaningless, "", "of optimizers that strata lacks"}},
    {{"optimizer.params.comm_backend_name", DsVerdict::meaningless, "parallel.transport",
      "of optimizers that strata lacks"}},
    {{"optimizer.params.muon_lr", DsVerdict::refused, "", "strata has no Muon"}},
    {{"optimizer.params.adam_lr", DsVerdict::refused, "", "strata has no Muon"}},
    {{"optimizer.params.ns_method", DsVerdict::refused, "", "strata has no Muon"}},
    {{"optimizer.legacy_fusion", DsVerdict::meaningless, "", "how kernels are fused changes no result"}},
    {{"zero_allow_untested_optimizer", DsVerdict::meaningless, "",
      "every optimizer of strata is tested with every placement"}},
    {{"zero_force_ds_cpu_optimizer", DsVerdict::meaningless, "", "states are updated where they are stored"}},
};

}  // namespace

std::span<const TableRow> optimizer_rows() noexcept { return kOptimizerRows; }

void add_optimizer_defaults(const Document& document, std::vector<Default>& into) {
  const std::string_view name = strata_name(document);
  if (name.empty()) return;
  const auto add = [&](std::string_view key, Json value) {
    JsonTree tree(std::move(value));
    if (document.find(key) == nullptr) into.push_back({key, std::move(tree)});
  };
  const bool is_adam = name == "adamw" || name == "adam";
  const bool is_torch = document.is_true("optimizer.params.torch_adam");
  if (document.value("scheduler.params.warmup_max_lr") == nullptr)
    add("optimizer.params.lr", name == "adagrad" ? 1e-2 : 1e-3);
  if (is_adam || name == "lion") add("optimizer.params.betas", Json::array({0.9, 0.999}));
  if (is_adam || name == "adagrad") add("optimizer.params.eps", name == "adagrad" ? 1e-10 : 1e-8);
  add("optimizer.params.weight_decay", is_torch && name == "adamw" ? 0.01 : 0.0);
  if (name == "sgd") add("optimizer.params.momentum", 0.0);
}

}  // namespace strata::detail
