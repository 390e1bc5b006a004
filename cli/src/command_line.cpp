// The only file that includes CLI11.
#include "command_line.h"

#include <algorithm>
#include <exception>
#include <new>

#include <CLI/CLI.hpp>

#include <strata/offload/machine_profile.h>
#include <strata/runtime/config/suggest.h>
#include <strata/runtime/status.h>
#include <strata/runtime/str.h>
#include <strata/train/load_config.h>

#include "exit_code.h"
#include "print.h"
#include "verbs/verbs.h"

namespace strata::cli {
namespace {

constexpr const char* kExamples =
    "Examples:\n"
    "  strata train --preset austen-5m --out runs/demo\n"
    "  strata plan --preset austen-5m memory.pinned=16MiB\n"
    "  strata plan models/gpt2\n"
    "  strata plan --machine h200 --params 13b model.seq=2048 train.micro_batch=8\n"
    "  strata bench --nvme-dir /mnt/nvme\n"
    "  strata verify --preset austen-5m\n"
    "  strata generate runs/demo --prompt \"Elizabeth \"\n"
    "  strata generate models/gpt2 --prompts questions.txt --top-p 0.9 --json\n"
    "  strata eval runs/demo --data unseen.txt\n"
    "  strata data inspect qa.tokens --tokenizer tokenizer.json --seq 512\n"
    "  strata train --init models/gpt2 data.train=notes.txt --out runs/tuned\n"
    "  strata export runs/tuned --out models/tuned --dtype bf16 --check\n"
    "  strata config show --preset austen-5m --origin\n"
    "  strata config check run.toml memory.device=64MiB\n"
    "  strata doctor --nvme-dir /mnt/nvme\n"
    "Values come from: defaults < preset < file < STRATA_<SECTION>_<KEY> < section.key=value.\n"
    "Exit codes:\n";

std::string footer() {
  std::string text = kExamples;
  for (const ExitMeaning& meaning : kExitMeanings)
    text += str(meaning.code < 10 ? "   " : "  ", meaning.code, "  ", meaning.text, "\n");
  return text;
}

/// A verb: its name and help text, its function, its actions and its options.
struct Verb {
  std::string_view name;
  const char* doc;
  int (*run)(const Args& args);
  std::vector<std::string_view> actions;
  void (*add_options)(CLI::App& app, Args& args);
};

std::string preset_names() {
  std::string names;
  for (const ConfigPreset& preset : train_schema().presets)
    names += str(names.empty() ? "" : ", ", preset.name);
  return names;
}

void add_config_options(CLI::App& app, Args& args) {
  app.require_subcommand(1);
  for (const auto& [name, doc] : {std::pair{"show", "Print all keys with their values"},
                                  std::pair{"check", "Report all problems, or ok"}}) {
    CLI::App* action = app.add_subcommand(name, doc);
    action
        ->add_option("items", args.items,
                     "FILE (.toml or .json; default: $STRATA_CONFIG) and section.key=value")
        ->option_text("[FILE] [key=value ...]");
    action->add_option(
        "--preset", args.preset,
        str("Named set of values; file, environment and key=value override it: ", preset_names()));
    action->add_flag("--json", args.json, "Print JSON");
    if (std::string_view(name) == "show")
      action->add_flag("--origin", args.origin, "Print the source of each value");
    action->callback([&args, name = std::string(name)] { args.action = name; });
  }
}

void add_nvme_dirs(CLI::App& app, Args& args) {
  app.add_option("--nvme-dir", args.nvme_dirs, "Directories for the NVMe tier, as in memory.nvme_dir")
      ->delimiter(',')
      ->option_text("DIR[,DIR...]");
}

void add_doctor_options(CLI::App& app, Args& args) {
  add_nvme_dirs(app, args);
  app.add_flag("--json", args.json, "Print JSON");
}

/// FILE, key=value and --preset, which every verb with a configuration accepts.
void add_run_options(CLI::App& app, Args& args) {
  app.add_option("items", args.items, "FILE (.toml or .json; default: $STRATA_CONFIG) and section.key=value")
      ->option_text("[FILE] [key=value ...]");
  app.add_option("--preset", args.preset,
                 str("Named set of values; file, environment and key=value override it: ", preset_names()));
}

void add_train_options(CLI::App& app, Args& args) {
  add_run_options(app, args);
  CLI::Option* out = app.add_option("--out", args.out_dir, "Run folder (default: runs/PRESET-TIME)");
  CLI::Option* overwrite = app.add_flag("--overwrite", args.overwrite, "Replace the run in --out");
  app.add_option("--init", args.init, "Hugging Face folder to start from; same as model.from=DIR")
      ->option_text("DIR");
  app.add_option("--resume", args.resume,
                 "Resume the run in this folder from its newest intact checkpoint, with its configuration")
      ->option_text("RUN")
      ->excludes(out)
      ->excludes(overwrite);
}

void add_plan_options(CLI::App& app, Args& args) {
  add_run_options(app, args);
  app.add_flag("--json", args.json, "Print JSON");
}

void add_machine_options(CLI::App& app, Args& args) {
  add_plan_options(app, args);
  std::string names;
  for (const ShippedMachine& machine : shipped_machines())
    names += str(names.empty() ? "" : ", ", machine.name);
  app.add_option("--machine", args.machine,
                 str("Forecast the step on another machine: ", names, ", or a profile of strata bench"))
      ->option_text("NAME|FILE");
  app.add_option("--params", args.params,
                 "Plan a LLaMA-like model with about N parameters: 7b, 1.3B, 350m, 13e9")
      ->option_text("N");
  CLI::Option* const sweep = app.add_flag(
      "--sweep", args.sweep, "Print tokens per second for other budgets of the device and of pinned RAM");
  app.add_flag("--optimize", args.optimize, "Print the smallest budgets that are as fast")
      ->excludes(sweep)
      ->excludes(app.get_option("--json"));
}

void add_budget_options(CLI::App& app, Args& args) {
  app.add_option("items", args.items, "RUN memory.TIER=BYTES ...");
}

void add_bench_options(CLI::App& app, Args& args) {
  add_nvme_dirs(app, args);
  app.add_option("--out", args.out_dir,
                 "File to write the profile to (default: where strata plan and train look for it)")
      ->option_text("FILE");
  app.add_flag("--quick", args.quick, "Take a fifth of the time; less exact");
  app.add_flag("--optional-kernels", args.optional_kernels,
               "Also measure kernels that a run must enable: FP8 GEMM, wgmma and cuDNN attention");
  app.add_option("--backend", args.backend, "Compute device to measure: host (CPU) or cuda (GPU)")
      ->check(CLI::IsMember({"host", "cuda"}))
      ->capture_default_str();
  app.add_flag("--json", args.json, "Print JSON");
}

void add_verify_options(CLI::App& app, Args& args) {
  add_plan_options(app, args);
  app.add_option("--steps", args.steps, "Training steps per placement");
  app.add_flag("--offload-overhead", args.offload_overhead,
               "Measure the cost of offloading instead: step time without divided by step time with it");
}

void add_generate_options(CLI::App& app, Args& args) {
  app.add_option("run", args.items, "Run folder, or a Hugging Face folder, and section.key=value")
      ->option_text("RUN [key=value ...]")
      ->required();
  CLI::Option* prompt = app.add_option("--prompt", args.prompts, "Text to continue; can be repeated")
                            ->allow_extra_args(false);  // key=value may follow
  app.add_option("--prompts", args.prompts_file,
                 "File with one prompt per line, or .jsonl with \"prompt\" or \"messages\"")
      ->option_text("FILE")
      ->excludes(prompt);
  app.add_option("--tokens,--max-tokens", args.tokens, "Maximum number of tokens to generate per prompt")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--temperature", args.temperature, "Sampling temperature; 0 = always the most likely token")
      ->check(CLI::Range(0.0, 100.0));
  app.add_option("--top-k", args.top_k, "Sample from the N most likely tokens; 0 = all")
      ->check(CLI::Range(0, 1 << 20));
  app.add_option("--top-p", args.top_p, "Of these, the smallest set whose probabilities sum to P; 1 = all")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--seed", args.seed, "Random seed; the same seed generates the same text");
  app.add_option("--batch", args.batch, "Number of prompts continued at the same time")
      ->check(CLI::Range(1, 4096));
  CLI::Option* stream =
      app.add_flag("--stream", args.stream, "Print the text while it is generated (default for one prompt)");
  app.add_flag("--no-stream", args.no_stream, "Print the text when it is complete")->excludes(stream);
  app.add_flag("--json", args.json, "Print one JSON object per prompt");
}

void add_eval_options(CLI::App& app, Args& args) {
  app.add_option("items", args.items, "Run folder or Hugging Face folder, and section.key=value")
      ->option_text("RUN|FOLDER [key=value ...]");
  app.add_option("--data", args.data, "Text, .jsonl or packed files (default: the run's validation data)")
      ->option_text("FILE ...");
  app.add_option("--batches", args.batches, "Evaluate only the first N micro-batches")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  app.add_option("--checkpoint", args.checkpoint,
                 "Step of the run's checkpoint to evaluate (default: the newest)")
      ->option_text("STEP")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 60));
  app.add_flag("--json", args.json, "Print JSON");
}

void add_export_options(CLI::App& app, Args& args) {
  app.add_option("run", args.items, "Run folder")->required();
  app.add_option("--out", args.out_dir, "Folder to create; must not exist")->required();
  app.add_option("--format", args.format, "Output format; hf = Hugging Face folder")
      ->check(CLI::IsMember({"hf"}));
  app.add_option("--dtype", args.dtype, "Dtype of the weights: f32, bf16 or f16");
  app.add_option("--max-shard-size", args.max_shard_size, "Maximum bytes of tensors per file");
  app.add_flag("--check", args.check, "Read the folder back and compare every tensor");
}

void add_tokenizer_options(CLI::App& app, Args& args) {
  app.require_subcommand(1);
  const auto action = [&](const char* name, const char* doc, const char* items) {
    CLI::App* sub = app.add_subcommand(name, doc);
    sub->add_option("items", args.items, items);
    sub->callback([&args, name] { args.action = name; });
    return sub;
  };
  CLI::App* train = action("train", "Train a byte-level BPE tokenizer on text files", "FILE ...");
  train->add_option("--vocab", args.vocab, "Vocabulary size, including the 256 bytes and end of text")
      ->check(CLI::Range(257, 1 << 20));
  train->add_option("-o,--out", args.tokenizer, "File to write");
  CLI::App* encode = action("encode", "Print the token ids of texts", "TEXT ...");
  encode->add_flag("--parse-special", args.special, "Encode the text of special tokens as these tokens");
  encode->add_flag("--add-special-tokens", args.add_special_tokens,
                   "Add the special tokens that the tokenizer specifies, for example BOS");
  for (CLI::App* sub : {encode, action("decode", "Print the text of token ids", "ID ..."),
                        action("info", "Show the properties of a tokenizer", "")})
    sub->add_option("-t,--tokenizer", args.tokenizer,
                    "tokenizer.json, or a folder with it or with vocab.json and merges.txt");
}

void add_data_options(CLI::App& app, Args& args) {
  app.require_subcommand(1);
  CLI::App* pack = app.add_subcommand("pack", "Turn text and .jsonl files into one file of tokens");
  pack->add_option("items", args.items, "FILE ...");
  pack->add_option("-o,--out", args.out_dir, "File to write");
  pack->add_option("--chat-template", args.chat_template,
                   "Chat template of conversations, as in data.chat_template");
  CLI::App* inspect = app.add_subcommand("inspect", "Show the contents of a packed file and one sample");
  inspect->add_option("file", args.items, "Packed file");
  inspect->add_option("--sample", args.sample, "Index of the sample to show")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 62));
  inspect->add_flag("--json", args.json, "Print JSON");
  for (CLI::App* sub : {pack, inspect}) {
    sub->add_option("-t,--tokenizer", args.tokenizer, "tokenizer.json to use, or a folder with it");
    sub->add_option("--seq", args.seq, "Tokens per sequence")->check(CLI::Range(1, 1 << 20));
    sub->callback([&args, name = sub->get_name()] { args.action = name; });
  }
}

const std::vector<Verb>& verbs() {
  static const std::vector<Verb> all = {
      {"train",
       "Train a model, with its states distributed over GPU, RAM and NVMe",
       run_train,
       {},
       add_train_options},
      {"plan",
       "Show the memory plan of a run and whether it fits, without starting it",
       run_plan,
       {},
       add_machine_options},
      {"budget",
       "Change the budgets of a running run without stopping it",
       run_budget,
       {},
       add_budget_options},
      {"bench", "Measure this machine for forecasts", run_bench, {}, add_bench_options},
      {"generate",
       "Continue prompts with a run or a Hugging Face folder",
       run_generate,
       {},
       add_generate_options},
      {"eval", "Measure the loss of a run or a Hugging Face folder on data", run_eval, {}, add_eval_options},
      {"export", "Export a run's model as a Hugging Face folder", run_export, {}, add_export_options},
      {"verify",
       "Train a few steps in many placements and compare the results bit by bit",
       run_verify,
       {},
       add_verify_options},
      {"tokenizer",
       "Train a tokenizer, encode and decode text, show a tokenizer",
       run_tokenizer,
       {"train", "encode", "decode", "info"},
       add_tokenizer_options},
      {"data",
       "Pack training data into one file, or inspect a packed file",
       run_data,
       {"pack", "inspect"},
       add_data_options},
      {"config", "Show or check a configuration", run_config, {"show", "check"}, add_config_options},
      {"doctor",
       "Check what works on this machine, and how to fix the rest",
       run_doctor,
       {},
       add_doctor_options},
  };
  return all;
}

int usage_error(std::FILE* err, std::string_view text) {
  print(err, str("strata: ", text, "\nRun 'strata --help'.\n"));
  return kExitUsage;
}

std::string join(const std::vector<std::string_view>& words) {
  std::string out;
  for (const std::string_view word : words) out += str(out.empty() ? "" : ", ", word);
  return out;
}

/// The error for an unknown verb or action; empty if there is none. CLI11 refuses them too, but without a
/// suggestion.
std::string unknown_word(const std::vector<std::string>& arguments) {
  std::vector<std::string_view> names;
  for (const Verb& verb : verbs()) names.push_back(verb.name);
  if (arguments.empty()) return str("no verb given; known: ", join(names));
  if (arguments[0].starts_with('-')) return {};
  const auto verb =
      std::find_if(verbs().begin(), verbs().end(), [&](const Verb& v) { return v.name == arguments[0]; });
  if (verb == verbs().end())
    return str("unknown verb '", arguments[0], "'; known: ", join(names), did_you_mean(arguments[0], names));
  if (verb->actions.empty() || (arguments.size() > 1 && arguments[1].starts_with('-'))) return {};
  if (arguments.size() < 2) return str(verb->name, ": missing action; known: ", join(verb->actions));
  const auto& actions = verb->actions;
  if (std::find(actions.begin(), actions.end(), arguments[1]) != actions.end()) return {};
  return str(verb->name, ": unknown action '", arguments[1], "'; known: ", join(actions),
             did_you_mean(arguments[1], actions));
}

/// The subcommands that the arguments name, outermost first, after the app itself.
std::vector<const CLI::App*> named_subcommands(const CLI::App& app) {
  std::vector<const CLI::App*> named = {&app};
  while (!named.back()->get_subcommands().empty()) named.push_back(named.back()->get_subcommands().front());
  return named;
}

void print_help(std::FILE* out, const CLI::App& app) {
  const std::vector<const CLI::App*> named = named_subcommands(app);
  std::string names;
  for (std::size_t i = 1; i < named.size(); ++i) names += str(names.empty() ? "" : " ", named[i]->get_name());
  print(out, named.back()->help(names));
}

/// The errors for unknown options, one per line; empty if there are none. CLI11 refuses them too, but without
/// a suggestion, and it complains about a missing option before a misspelt one.
std::string unknown_options(const CLI::App& app) {
  std::vector<std::string> known;
  for (const CLI::Option* option : named_subcommands(app).back()->get_options())
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  std::string text;
  for (const std::string& given : app.remaining(true)) {
    if (!given.starts_with("--") || given.size() == 2) continue;
    const std::string name = given.substr(0, given.find('='));
    text += str(text.empty() ? "" : "\n", "unknown option '", name, "'",
                did_you_mean(name, std::vector<std::string_view>(known.begin(), known.end())));
  }
  return text;
}

int run(std::vector<std::string> arguments, Args args) {
  if (const std::string problem = unknown_word(arguments); !problem.empty())
    return usage_error(args.err, problem);
  CLI::App app("Trains models larger than GPU memory, using GPU memory, pinned RAM and NVMe", "strata");
  app.set_version_flag("--version", std::string("strata " STRATA_VERSION));
  app.footer(footer());
  app.require_subcommand(1);
  int (*chosen)(const Args&) = nullptr;
  for (const Verb& verb : verbs()) {
    CLI::App* sub = app.add_subcommand(std::string(verb.name), verb.doc);
    verb.add_options(*sub, args);
    sub->callback([&chosen, function = verb.run] { chosen = function; });
  }
  try {
    std::reverse(arguments.begin(), arguments.end());  // CLI11 expects them in reverse order
    app.parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    print_help(args.out, app);
    return kExitOk;
  } catch (const CLI::CallForVersion& version) {
    print(args.out, str(version.what(), "\n"));
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    const std::string unknown = unknown_options(app);
    return usage_error(args.err, unknown.empty() ? error.what() : unknown);
  }
  return chosen(args);
}

}  // namespace

int run_command_line(std::vector<std::string> arguments, std::vector<std::string> environment, std::FILE* out,
                     std::FILE* err) noexcept {
  int code = kExitInternal;
  try {
    Args args;
    args.environment = std::move(environment);
    args.out = out;
    args.err = err;
    code = run(std::move(arguments), std::move(args));
  } catch (const Error& error) {  // thrown by must()
    code = exit_code(error.status());
    std::fprintf(err, "strata: %s\n", error.what());
  } catch (const std::bad_alloc&) {
    code = kExitFit;
    std::fputs("strata: out of memory\n", err);
  } catch (const std::exception& error) {
    std::fprintf(err, "strata: %s\n", error.what());
  }
  // A full disk or a closed pipe is noticed only now, and truncated output must not look like success.
  if (std::fflush(out) != 0 || std::ferror(out) != 0) {
    std::fprintf(err, "strata: the output could not be written\n");
    if (code == kExitOk) code = kExitIo;
  }
  return code;
}

}  // namespace strata::cli
