#include <strata/config/load_config.h>

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <strata/config/train_schema.h>
#include <strata/model/adapter/peft_folder.h>
#include <strata/model/hf/config.h>
#include <strata/model/hf/explain_folder.h>
#include <strata/model/hf/folder.h>
#include <strata/model/hf/model_files.h>
#include <strata/model/hf/training_settings.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/str.h>
#include <strata/config/objective.h>
#include <strata/runtime/threads/core_share.h>
#include <strata/config/chat_choice.h>
#include <strata/config/decide.h>
#include <strata/config/key_facts.h>
#include <strata/config/task.h>

#include <strata/config/run_paths.h>

#include <strata/config/adapter_methods.h>
#include "load/data_patterns.h"
#include <strata/config/implied_values.h>
#include "load/find_reward_model.h"
#include "schema/sections.h"

namespace strata {
namespace {

constexpr std::uint64_t kModelConfigLimit = 16 << 20;

// The Hugging Face folder that an argument names, directly or through its config.json; empty if it names
// none. A strata configuration in JSON may have that file name too, but has no model_type.
std::string model_folder(std::string item) {
  while (item.size() > 1 && item.back() == '/') item.pop_back();
  if (model_file_exists(posix_io(), item + "/config.json")) return item;
  const std::filesystem::path path(item);
  if (path.filename() != "config.json") return {};
  const auto text = read_text(posix_io(), item, kModelConfigLimit);
  if (!text.has_value() || text->find("\"model_type\"") == std::string::npos) return {};
  return path.has_parent_path() ? path.parent_path().string() : ".";
}

Result<ConfigSources> config_sources(const ConfigRequest& request) {
  ConfigSources sources;
  sources.environment = request.environment;
  sources.file_text = request.file_text;
  sources.preset = request.preset;
  for (const std::string& item : request.items) {
    if (is_assignment(item))
      sources.arguments.push_back(item);
    else if (const std::string folder = model_folder(item); !folder.empty())
      sources.arguments.push_back("model.from=" + folder);
    else if (sources.file.empty())
      sources.file = item;
    else
      return Status::error(Code::invalid, str("argument ", item, ": a second file besides ", sources.file,
                                              "; overrides are section.key=value"));
  }
  if (!request.task.empty()) {
    STRATA_TRY_ASSIGN(ConfigLayer task, task_layer(request.task));
    sources.discovered.push_back(std::move(task));
  }
  if (!request.init.empty()) sources.arguments.push_back("model.from=" + request.init);
  if (!request.adapter.empty()) sources.arguments.push_back("adapter.from=" + request.adapter);
  for (const std::string& variable : request.environment)
    if (sources.file.empty() && variable.starts_with("STRATA_CONFIG=")) sources.file = variable.substr(14);
  return sources;
}

/// Which training settings a file of a folder has that strata does not implement; empty if none.
Result<std::string> ignored_settings_of(const std::string& file, const std::string& text) {
  STRATA_TRY_ASSIGN(const std::string settings, ignored_training_settings(text));
  return settings.empty() ? std::string() : str(file, " specifies ", settings);
}

/// The contents of a folder's config.json.
struct FolderModel {
  DecoderConfig decoder;
  std::string ignored_settings;  ///< training settings that strata does not implement
  double router_aux = 0;         ///< the coefficient by which it asks for the loss that balances experts
  kernels::WeightFormat quantized = kernels::WeightFormat::full;
};

/// The config.json of the model that a run or a command starts from. A run has its own copy, because the
/// folder may have been moved or replaced since.
std::string model_config_path(const ConfigTree& tree, const std::string& run) {
  const std::string copy = str(run, "/base/config.json");
  const bool of_run = !run.empty() && tree.entry("model.from").origin.starts_with("file ");
  return of_run && posix_io().exists(copy) ? copy : tree.text("model.from") + "/config.json";
}

Result<FolderModel> read_folder_model(const std::string& path, const std::string& folder) {
  if (!model_file_exists(posix_io(), path))
    STRATA_TRY(explain_hf_folder(posix_io(), folder).annotate("model.from"));
  auto text = read_model_file(posix_io(), path, kModelConfigLimit);
  if (!text.has_value()) return text.status().annotate("model.from");
  // A run's copy says what its folder was found to be.
  auto config = path == folder + "/config.json" ? HfFolder::config_of(posix_io(), folder)
                                                : decoder_from_hf_config(*text);
  if (!config.has_value()) return config.status().annotate(path);
  STRATA_TRY_ASSIGN(std::string ignored_settings, ignored_settings_of(folder + "/config.json", *text));
  STRATA_TRY_ASSIGN(const double router_aux, router_aux_in_hf_config(*text));
  return FolderModel{*std::move(config), std::move(ignored_settings), router_aux,
                     quantization_in_hf_config(*text)};
}

std::vector<std::pair<std::string, std::string>> model_sizes(const DecoderConfig& config) {
  const DecoderConfig decoder = with_derived_sizes(config);
  std::vector<std::pair<std::string, std::string>> sizes;
  for (const TrainKey& key : train_keys())
    if (key.facts.from_folder != nullptr) sizes.emplace_back(key.name(), key.facts.from_folder(decoder));
  return sizes;
}

/// Refuses configured values that differ from those of the folder: they would be another model or adapter.
Status check_found(const ConfigTree& tree, const ConfigLayer& found) {
  std::vector<std::string> problems;
  for (const auto& [key, want] : found.values) {
    const ConfigEntry& entry = tree.entry(key);
    if (key == "adapter.dropout") continue;  // belongs to the training, not to what is trained
    const std::string is = entry.spec->type == KeyType::number_list
                               ? fmt::format("{}", fmt::join(tree.numbers(key), ","))
                           : entry.spec->type == KeyType::text_list ? detail::list_text(tree.texts(key))
                                                                    : entry.raw;
    if (is != want)
      problems.push_back(str(entry.origin, ": ", key, " = ", is, ", but ", want.empty() ? "nothing" : want,
                             " according to ", found.origin));
  }
  return config_problems(problems);
}

Result<CoreShare> resolve_core_share(const ConfigTree& tree, const std::vector<std::string>& environment) {
  CoreShareOptions options;
  const auto given = [&](const char* key) -> std::optional<int> {
    if (tree.is_auto(key)) return std::nullopt;
    return static_cast<int>(tree.integer(key));  // the schema limits its range
  };
  options.threads = given("cpu.threads");
  options.service_cores = given("cpu.service_cores");
  return process_core_share(environment, options);
}

/// Fills the struct, including the core share. Errors: the problems of both.
Result<TrainConfig> fill(ConfigTree& tree, const ConfigRequest& request) {
  Result<CoreShare> share = resolve_core_share(tree, request.environment);
  resolve_simple_autos(tree, share.value_or(CoreShare{}));
  Result<TrainConfig> config =
      fill_train_config(tree, request.use == ModelUse::training || request.use == ModelUse::saved);
  std::vector<std::string> problems;
  if (!config.has_value()) problems.emplace_back(config.status().message());
  if (!share.has_value()) problems.emplace_back(share.status().message());
  STRATA_TRY(config_problems(problems));
  config->cpu.share = *std::move(share);
  return config;
}

// A quantized folder stays as it is under adapters; training all of it needs what its values stand for.
void decide_base(ConfigTree& tree, const std::optional<FolderModel>& model, ModelUse use) {
  if (!tree.is_auto("train.base")) return;
  const bool adapted = use == ModelUse::base_of_adapters || tree.text("adapter.method") != "none";
  const bool keeps = model && model->quantized != kernels::WeightFormat::full && adapted;
  tree.resolve("train.base", keeps ? std::string(to_string(model->quantized)) : "full",
               keeps ? "as the folder of model.from is quantized" : "the base is not quantized");
}

// Whether a value comes from the resolved configuration of the run in `folder`.
bool is_of_run(std::string_view origin, const std::string& folder) {
  const std::string run = run_of_origin(origin);
  std::error_code absent;
  return !run.empty() && !folder.empty() && std::filesystem::equivalent(run, folder, absent);
}

// Until the data decide it, a sequence is as long as it may be: a plan then has room for what comes.
void limit_open_length(const ConfigTree& tree, TrainConfig& config) {
  constexpr std::int64_t kMost = 2048;
  if (!tree.is_auto("model.seq")) return;
  const std::int64_t positions = config.model.loaded->positions, known = positions > 0 ? positions : kMost;
  config.model.seq =
      static_cast<int>(std::max<std::int64_t>(1, std::min(known - virtual_tokens(config), kMost)));
  config.model.seq_is_most = true;
}

Status decide_chat(ConfigTree& tree, TrainConfig& config) {
  ChatChoice& choice = config.data.chosen_chat;
  const std::string tokenizer = tokenizer_source(config);
  const bool keeps = is_of_run(tree.entry("data.chat_template").origin, folder_of_tokenizer(tokenizer));
  STRATA_TRY_ASSIGN(choice, choose_chat(posix_io(), config.data.chat_template, tokenizer, keeps));
  if (!tree.is_auto("data.chat_template") || !choice.chat.has_value()) return {};
  decide(tree, config, "data.chat_template", std::string(choice.chat->name()), choice.why);
  return {};
}

bool is_planned(const std::string& key) {
  const std::vector<std::string>& planned = planned_keys();
  return std::find(planned.begin(), planned.end(), key) != planned.end();
}

// Assignments KEY=auto for the keys that a run had decided itself: for `all` of them, also if the budgets or
// the ranks have changed, else for the undo log. Its size is what the placement leaves; as a setting it would
// be reserved before states are placed, and the resumed run would not have the plan of its start.
std::vector<std::string> keys_to_replan(const ConfigTree& tree, bool all) {
  const auto is_of_file = [&](std::string_view key) { return tree.entry(key).origin.starts_with("file "); };
  std::vector<std::string> assignments;
  if (tree.is_auto("offload.auto_keys")) return assignments;
  const bool same_inputs =
      !all && std::all_of(train_keys().begin(), train_keys().end(),
                          [&](const TrainKey& key) { return !key.facts.replans || is_of_file(key.name()); });
  for (const std::string& key : tree.texts("offload.auto_keys"))
    if (is_planned(key) && is_of_file(key) && (!same_inputs || key == "offload.undo_log"))
      assignments.push_back(key + "=auto");
  return assignments;
}

// The keys in offload.auto_keys that the run still decides itself. A key that was set since is the user's.
std::string remaining_auto_keys(const ConfigTree& tree) {
  std::string keys;
  for (const std::string& key : tree.texts("offload.auto_keys"))
    if (is_planned(key) && (tree.entry(key).automatic || tree.entry(key).origin.starts_with("file ")))
      keys += str(keys.empty() ? "" : ",", key);
  return keys;
}

}  // namespace

bool is_assignment(const std::string& item) {
  return item.find('=') != std::string::npos && !item.starts_with('/') && !item.starts_with('.') &&
         !posix_io().exists(item);
}

Result<LoadedConfig> load_config(const ConfigRequest& request, ConfigLayer unless_set) {
  STRATA_TRY_ASSIGN(ConfigSources sources, config_sources(request));
  const std::string run = run_folder_of_config(sources.file);
  if (const std::string& file = sources.file; file.ends_with(".yaml") || file.ends_with(".yml"))
    return Status::error(Code::unsupported,
                         str(file,
                             " is YAML, and strata reads TOML or JSON; of a file of axolotl or "
                             "LLaMA-Factory makes one: strata config convert ",
                             file, " > run.toml"));
  STRATA_TRY_ASSIGN(ConfigTree tree, ConfigTree::build(train_schema(), sources));
  std::erase_if(unless_set.values,
                [&](const auto& value) { return tree.entry(value.first).origin != "default"; });
  const std::vector<std::string> replanned = keys_to_replan(tree, request.replans);
  sources.arguments.insert(sources.arguments.end(), replanned.begin(), replanned.end());
  if (!unless_set.values.empty() || !replanned.empty()) {
    sources.discovered.push_back(std::move(unless_set));
    STRATA_TRY_ASSIGN(tree, ConfigTree::build(train_schema(), sources));
  }
  if (!tree.is_auto("offload.auto_keys") && tree.entry("offload.auto_keys").origin.starts_with("file ")) {
    sources.arguments.push_back("offload.auto_keys=" + remaining_auto_keys(tree));
    STRATA_TRY_ASSIGN(tree, ConfigTree::build(train_schema(), sources));
  }
  STRATA_TRY(detail::add_implied_values(sources, tree));
  STRATA_TRY(detail::choose_run_length(sources, tree));
  std::optional<FolderModel> model;
  std::string router_aux_by;
  if (const std::string from = tree.text("model.from"); !from.empty()) {
    const std::string path = model_config_path(tree, run);
    STRATA_TRY_ASSIGN(model, read_folder_model(path, from));
    sources.discovered.push_back({path, model_sizes(model->decoder)});
    STRATA_TRY_ASSIGN(tree, ConfigTree::build(train_schema(), sources));
    STRATA_TRY(check_found(tree, sources.discovered.back()));
    if (model->router_aux > 0 && tree.entry("train.router_aux").origin == "default" &&
        tree.text("train.objective") == "lm") {
      sources.discovered.push_back({path, {{"train.router_aux", str(model->router_aux)}}});
      STRATA_TRY_ASSIGN(tree, ConfigTree::build(train_schema(), sources));
      router_aux_by = path;
    }
  }
  // A run has taken what it needs from the folder into its own configuration.
  const std::string adapter = tree.text("adapter.from"), given_by = tree.entry("adapter.from").origin;
  if (!adapter.empty() && (run.empty() || !given_by.starts_with("file "))) {
    if (!run.empty())
      return Status::error(Code::invalid,
                           str(given_by, ": adapter.from = ", adapter, ", but ", run,
                               " is a run, which has parameters of its own; name a Hugging Face folder"));
    auto found = read_peft_settings(posix_io(), adapter);
    if (!found.has_value()) return found.status().annotate("adapter.from");
    if (auto* const lora = std::get_if<LoraSettings>(&*found); lora != nullptr && model)
      *lora = without_absent(model->decoder, std::move(*lora));
    sources.discovered.push_back({adapter + "/adapter_config.json", detail::adapter_keys_of(*found)});
    STRATA_TRY_ASSIGN(tree, ConfigTree::build(train_schema(), sources));
    STRATA_TRY(check_found(tree, sources.discovered.back()));
  }
  if (!run.empty()) resolve_run_paths(posix_io(), tree, run);
  std::vector<std::string> data_notes;
  STRATA_TRY(detail::expand_data_patterns(posix_io(), tree, data_notes));
  decide_base(tree, model, request.use);
  STRATA_TRY(detail::decide_without_data(tree));
  STRATA_TRY_ASSIGN(TrainConfig config, fill(tree, request));
  config.data.notes = std::move(data_notes);
  if (model) {
    config.model.loaded = std::move(model->decoder);
    limit_open_length(tree, config);
    config.model.ignored_settings = std::move(model->ignored_settings);
    config.model.router_aux_by = std::move(router_aux_by);
    if (config.model.loaded->scores && !objective_of(config).scores)
      return Status::error(Code::invalid,
                           str("model.from = ", config.model.from,
                               " is a reward model, which scores sequences and has no head for tokens; use "
                               "--task reward, or name the model that it was made of"));
  }
  STRATA_TRY(decide_chat(tree, config));
  const auto load_run = [](const std::string& file) -> Result<TrainConfig> {
    STRATA_TRY_ASSIGN(LoadedConfig of_run, load_config({.items = {file}}));
    return std::move(of_run.config);
  };
  if (request.use == ModelUse::training) STRATA_TRY(detail::find_reward_model(tree, config, load_run));
  return LoadedConfig{std::move(tree), std::move(config)};
}

void apply_overrides(ConfigRequest& request, const std::vector<std::string>& overrides) {
  for (const std::string& override_text : overrides) {
    const std::string key = override_text.substr(0, override_text.find('=') + 1);
    std::erase_if(request.items, [&](const std::string& item) { return item.starts_with(key); });
    request.items.push_back(override_text);
  }
}

void apply_defaults(ConfigRequest& request, const std::vector<std::string>& assignments) {
  const std::vector<std::string> given = request.items;
  for (const std::string& assignment : assignments) {
    const std::string key = assignment.substr(0, assignment.find('=') + 1);
    if (std::none_of(given.begin(), given.end(),
                     [&](const std::string& item) { return item.starts_with(key); }))
      request.items.push_back(assignment);
  }
}

std::vector<std::string> device_only_overrides() {
  std::vector<std::string> overrides;
  for (const TrainKey& key : train_keys())
    if (!key.facts.on_device.empty()) overrides.push_back(str(key.name(), "=", key.facts.on_device));
  return overrides;
}

void decide(LoadedConfig& loaded, std::string_view key, ConfigValue value, std::string why) {
  decide(loaded.tree, loaded.config, key, std::move(value), std::move(why));
}

}  // namespace strata
