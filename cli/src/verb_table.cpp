// The verbs with their options. Only this file and command_line.cpp include CLI11.
#include "verb_table.h"

#include <cstdint>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>

#include <strata/offload/machine_profile.h>
#include <strata/runtime/str.h>
#include <strata/train/load_config.h>
#include <strata/train/task.h>

#include "verbs/verbs.h"

namespace strata::cli {
namespace {

std::string preset_names() {
  std::string names;
  for (const ConfigPreset& preset : train_schema().presets)
    names += str(names.empty() ? "" : ", ", preset.name);
  return names;
}

void add_task(CLI::App& app, Args& args) {
  std::string tasks;
  for (const TrainTask& task : train_tasks())
    tasks += str(tasks.empty() ? "" : "; ", task.name, ", ", task.doc);
  app.add_option("--task", args.task, "Values for a kind of run, overridden like a preset's: " + tasks)
      ->option_text("TASK");
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
    add_task(*action, args);
    action->add_flag("--json", args.json, "Print JSON");
    if (std::string_view(name) == "show")
      action->add_flag("--origin", args.origin, "Print the source of each value");
    action->callback([&args, name = std::string(name)] { args.action = name; });
  }
  CLI::App* explain = app.add_subcommand("explain", "Say what a key does and accepts");
  explain->add_option("items", args.items, "Key, as section.key, or a section")
      ->option_text("KEY ...")
      ->required();
  explain->callback([&args] { args.action = "explain"; });
  for (const auto& [name, doc] :
       {std::pair{"schema", "Print a JSON schema of configuration files, for editors"},
        std::pair{"reference", "Print all keys as Markdown"}})
    app.add_subcommand(name, doc)->callback([&args, name = std::string(name)] { args.action = name; });
  CLI::App* convert =
      app.add_subcommand("convert", "Turn a ds_config.json of DeepSpeed into a configuration");
  CLI::Option* file = convert->add_option("items", args.items, "Configuration of DeepSpeed, JSON")
                          ->option_text("FILE")
                          ->expected(0, 1);
  convert->add_flag("--rows", args.rows, "Print what becomes of every key of DeepSpeed")->excludes(file);
  convert->add_flag("--json", args.json, "Print JSON");
  convert->callback([&args] { args.action = "convert"; });
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
  add_task(app, args);
}

void add_adapter(CLI::App& app, Args& args) {
  app.add_option("--adapter", args.adapter, "Folder of a PEFT adapter of the model; same as adapter.from=DIR")
      ->option_text("DIR");
}

/// Adapters that prompts or lines choose by their names.
void add_named_adapters(CLI::App& app, Args& args) {
  app.add_option("--adapter", args.adapters,
                 "PEFT adapter of the model; can be repeated with names, which prompts or lines in JSON "
                 "choose by \"adapter\"")
      ->option_text("[NAME=]DIR")
      ->allow_extra_args(false);  // key=value may follow
  app.add_option("--default-adapter", args.default_adapter,
                 "Adapter of those that choose none (default: the only one, or of several none)")
      ->option_text("NAME");
}

void add_train_options(CLI::App& app, Args& args) {
  add_run_options(app, args);
  add_adapter(app, args);
  CLI::Option* out = app.add_option("--out", args.out_dir, "Run folder (default: runs/PRESET-TIME)");
  app.add_option("--ranks-per-process", args.ranks_per_process,
                 "Ranks of each process that mpirun or srun has started, 1 to 8 (default: 1)")
      ->option_text("N");
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
  app.add_option("--ranks", args.ranks, "Compare the ways in which N ranks may divide the run")
      ->option_text("N")
      ->check(CLI::Range(1, 65536));
  app.add_option("--timeline", args.timeline,
                 "Draw a step of the ranks of a pipeline (.svg), or write its events for Perfetto (.json)")
      ->option_text("FILE");
  CLI::Option* const sweep = app.add_flag(
      "--sweep", args.sweep, "Print tokens per second for other budgets of the device and of pinned RAM");
  app.add_flag("--optimize", args.optimize, "Print the smallest budgets that are as fast")
      ->excludes(sweep)
      ->excludes(app.get_option("--json"));
}

void add_budget_options(CLI::App& app, Args& args) {
  app.add_option("items", args.items, "Run folder, and the budgets that it is to have")
      ->option_text("RUN memory.TIER=BYTES ...");
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

void add_sampling(CLI::App& app, Args& args) {
  app.add_option("--tokens,--max-tokens", args.tokens, "Maximum number of tokens to generate per prompt")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--temperature", args.temperature, "Sampling temperature; 0 = always the most likely token")
      ->check(CLI::Range(0.0, 100.0));
  app.add_option("--top-k", args.top_k, "Sample from the N most likely tokens; 0 = all")
      ->check(CLI::Range(0, 1 << 20));
  app.add_option("--top-p", args.top_p, "Of these, the smallest set whose probabilities sum to P; 1 = all")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--seed", args.seed, "Random seed; the same seed generates the same text");
}

void add_chat_options(CLI::App& app, Args& args) {
  app.add_option("model", args.items, "Run folder or Hugging Face folder, and section.key=value")
      ->option_text("RUN|FOLDER [key=value ...]")
      ->required();
  add_named_adapters(app, args);
  app.add_option("--system", args.system, "The first message, of role system")->option_text("TEXT");
  app.add_option("--context", args.context,
                 "Tokens of a conversation (default: 4096, if the model supports them)")
      ->option_text("N")
      ->check(CLI::Range(std::int64_t{16}, std::int64_t{1} << 20));
  add_sampling(app, args);
}

void add_generate_options(CLI::App& app, Args& args) {
  app.add_option("run", args.items, "Run folder, or a Hugging Face folder, and section.key=value")
      ->option_text("RUN [key=value ...]")
      ->required();
  add_named_adapters(app, args);
  CLI::Option* prompt = app.add_option("--prompt", args.prompts, "Text to continue; can be repeated")
                            ->allow_extra_args(false);  // key=value may follow
  app.add_option("--prompts", args.prompts_file,
                 "File with one prompt per line, or .jsonl with \"prompt\" or \"messages\"")
      ->option_text("FILE")
      ->excludes(prompt);
  add_sampling(app, args);
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
  add_adapter(app, args);
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

void add_score_options(CLI::App& app, Args& args) {
  app.add_option("model", args.items, "Run folder or Hugging Face folder, and section.key=value")
      ->option_text("RUN|FOLDER [key=value ...]")
      ->required();
  add_named_adapters(app, args);
  app.add_option("--in", args.in_file,
                 "Lines of JSON with \"context\" and \"continuation\", \"context_ids\" and "
                 "\"continuation_ids\", or \"text\" (default: -, standard input)")
      ->option_text("FILE|-");
  app.add_option("--out", args.out_file, "File for one line of JSON per line (default: -, standard output)")
      ->option_text("FILE|-");
  app.add_option("--batch", args.batch, "Number of lines scored at the same time")
      ->check(CLI::Range(1, 4096));
  app.add_option(
         "--context", args.context,
         "Tokens that the model reads at once; a longer context is cut on the left (default: what the "
         "model supports, at most 2048)")
      ->option_text("N")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
}

void add_export_options(CLI::App& app, Args& args) {
  app.add_option("run", args.items, "Run folder, and section.key=value")
      ->option_text("RUN [key=value ...]")
      ->required();
  app.add_option("--out", args.out_dir, "Folder to create, or file for --format gguf; must not exist")
      ->required();
  app.add_option("--format", args.format,
                 "auto = peft if adapters were trained, else hf; hf, merged = Hugging Face folder; peft = "
                 "folder of PEFT; gguf = file for llama.cpp")
      ->check(CLI::IsMember({"auto", "hf", "peft", "merged", "gguf"}));
  app.add_option("--dtype", args.dtype, "Dtype of the weights: f32, bf16 or f16; of gguf also q8_0");
  app.add_option("--max-shard-size", args.max_shard_size, "Maximum bytes of tensors per file");
  app.add_flag("--check", args.check, "Read the folder or file back and compare every tensor");
  app.add_flag(
      "--states", args.states,
      "Also write step-N, the f32 masters and the optimizer's states, for strata.load_checkpoint in Python");
}

void add_tokenizer_options(CLI::App& app, Args& args) {
  app.require_subcommand(1);
  const auto action = [&](const char* name, const char* doc, const char* items, const char* of_items) {
    CLI::App* sub = app.add_subcommand(name, doc);
    if (*items != 0) sub->add_option("items", args.items, of_items)->option_text(items);
    sub->callback([&args, name] { args.action = name; });
    return sub;
  };
  CLI::App* train =
      action("train", "Train a byte-level BPE tokenizer on text files", "FILE ...", "Text files");
  train->add_option("--vocab", args.vocab, "Vocabulary size, including the 256 bytes and end of text")
      ->check(CLI::Range(257, 1 << 20));
  train->add_option("-o,--out", args.tokenizer, "File to write");
  CLI::App* encode = action("encode", "Print the token ids of texts", "TEXT ...", "Texts");
  encode->add_flag("--parse-special", args.special, "Encode the text of special tokens as these tokens");
  encode->add_flag("--add-special-tokens", args.add_special_tokens,
                   "Add the special tokens that the tokenizer specifies, for example BOS");
  for (CLI::App* sub : {encode, action("decode", "Print the text of token ids", "ID ...", "Token ids"),
                        action("info", "Show the properties of a tokenizer", "", "")})
    sub->add_option("-t,--tokenizer", args.tokenizer,
                    "tokenizer.json, or a folder with it or with vocab.json and merges.txt");
}

void add_data_options(CLI::App& app, Args& args) {
  app.require_subcommand(1);
  CLI::App* pack = app.add_subcommand("pack", "Turn text and .jsonl files into one file of tokens");
  pack->add_option("items", args.items, "Text and .jsonl files")->option_text("FILE ...");
  pack->add_option("-o,--out", args.out_dir, "File to write");
  pack->add_option("--chat-template", args.chat_template,
                   "Chat template of conversations, as in data.chat_template");
  CLI::App* inspect = app.add_subcommand("inspect", "Show the contents of a packed file and one sample");
  inspect->add_option("file", args.items, "Packed file")->option_text("FILE");
  inspect->add_option("--sample", args.sample, "Index of the sample to show")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 62));
  inspect->add_flag("--json", args.json, "Print JSON");
  for (CLI::App* sub : {pack, inspect}) {
    sub->add_option("-t,--tokenizer", args.tokenizer, "tokenizer.json to use, or a folder with it");
    sub->add_option("--seq", args.seq, "Tokens per sequence")->check(CLI::Range(1, 1 << 20));
    sub->callback([&args, name = sub->get_name()] { args.action = name; });
  }
}

void add_report_options(CLI::App& app, Args& args) {
  app.add_option("runs", args.items, "Run folders; several are compared")
      ->option_text("RUN [RUN ...]")
      ->required();
  app.add_option("--out", args.out_file,
                 "Page to write (default: report.html in the run's folder, or here for several)")
      ->option_text("FILE");
  app.add_option("--svg", args.svg_dir, "Folder for each chart as a picture")->option_text("DIR");
  app.add_flag("--text", args.text, "Print charts and figures to the terminal instead");
}

void add_trace_options(CLI::App& app, Args& args) {
  app.add_option("run", args.items, "Run folder")->option_text("RUN")->required()->expected(1);
  app.add_option("--steps", args.trace_steps, "First and last step (default: all that were traced)")
      ->option_text("A:B");
  app.add_option("--out", args.out_file, "File to write (default: trace-perfetto.json in the run's folder)")
      ->option_text("FILE");
  app.add_flag("--json", args.json, "Print JSON");
}

void add_completions_options(CLI::App& app, Args& args) {
  app.add_option("shell", args.action, "The shell")
      ->option_text("SHELL")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
}

void add_man_options(CLI::App& app, Args& args) {
  app.add_option("verb", args.action, "A verb (default: strata itself)")->option_text("VERB");
  app.add_flag("--markdown", args.markdown, "Print all verbs as Markdown instead");
}

void add_complete_options(CLI::App& app, Args& args) {
  app.add_option("words", args.items, "The command line behind strata");
}

void add_top_options(CLI::App& app, Args& args) {
  app.add_option("runs", args.items, "Run folders (default: those that run on this machine)")
      ->option_text("[RUN ...]");
  app.add_option("--interval", args.interval_s, "Seconds between two looks (default: 1)")
      ->check(CLI::Range(0.1, 3600.0));
  app.add_flag("--once", args.once, "Print one line for each run, and end");
}

void add_init_options(CLI::App& app, Args& args) {
  app.add_option("file", args.items, "File to write (default: run.toml)")
      ->option_text("[FILE]")
      ->expected(0, 1);
  app.add_option("--model", args.model, "Hugging Face folder, or the size of a new model: 5m, 125m, 1.3b")
      ->option_text("DIR|SIZE");
  app.add_option("--data", args.data, "Text, .jsonl or packed files to train on")->option_text("FILE ...");
  app.add_option("--task", args.task, "full, lora, qlora, or auto: the first of them that fits")
      ->option_text("TASK");
  app.add_option("--nvme-dir", args.nvme_dirs, "Folder for what does not fit into RAM, or none")
      ->option_text("DIR")
      ->expected(1);
  app.add_flag("-y,--yes", args.yes, "Ask nothing: take what is usual for what is not given");
  app.add_flag("--overwrite", args.overwrite, "Replace FILE");
}

void add_ckpt_options(CLI::App& app, Args& args) {
  app.require_subcommand(1);
  const auto action = [&](const char* name, const char* doc) {
    CLI::App* sub = app.add_subcommand(name, doc);
    sub->add_option("run", args.items, "Run folder, or a folder of checkpoints")
        ->option_text("RUN|FOLDER")
        ->required()
        ->expected(1);
    sub->callback([&args, name] { args.action = name; });
    return sub;
  };
  const auto add_steps = [&](CLI::App* sub, const char* doc) {
    sub->add_option("--checkpoint", args.checkpoints, doc)->option_text("STEP ...");
  };
  action("ls", "Show the checkpoints of a run")
      ->add_flag("--json", args.json, "Print one JSON object for each");
  CLI::App* prune = action("prune", "Remove old and damaged checkpoints");
  prune->add_option("--keep", args.keep, "Checkpoints to keep, the newest whole ones")
      ->option_text("N")
      ->required()
      ->check(CLI::Range(1, 1 << 20));
  prune->add_option("--every", args.every, "Also keep those of steps that are multiples of N")
      ->option_text("N")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 60));
  prune->add_flag("--dry-run", args.dry_run, "Say what would be removed, and remove nothing");
  add_steps(action("verify", "Read checkpoints and compare all digests"), "Steps (default: all)");
  CLI::App* average = action("average", "Make a run of the mean of several checkpoints' parameters");
  average->add_option("--last", args.last, "Number of checkpoints, the newest")
      ->option_text("N")
      ->check(CLI::Range(1, 1 << 20));
  add_steps(average, "Steps of the checkpoints");
  average->add_option("--out", args.out_dir, "Run folder to make")->option_text("DIR");
}

void add_compare_options(CLI::App& app, Args& args) {
  app.add_option("runs", args.items, "Run folders; the others are compared with the first")
      ->option_text("RUN RUN ...")
      ->required();
}

constexpr std::string_view kTokenizerActions[] = {"train", "encode", "decode", "info"};
constexpr std::string_view kDataActions[] = {"pack", "inspect"};
constexpr std::string_view kCkptActions[] = {"ls", "prune", "verify", "average"};
constexpr std::string_view kConfigActions[] = {"show", "check", "convert", "explain", "schema", "reference"};

constexpr Verb kVerbs[] = {
    {"init", "Write a configuration that fits this machine, by four questions", run_init, add_init_options},
    {"train", "Train a model, with its states distributed over GPU, RAM and NVMe", run_train,
     add_train_options},
    {"plan", "Show the memory plan of a run and whether it fits, without starting it", run_plan,
     add_machine_options},
    {"budget", "Change the budgets of a running run without stopping it", run_budget, add_budget_options},
    {"bench", "Measure this machine for forecasts", run_bench, add_bench_options},
    {"generate", "Continue prompts with a run or a Hugging Face folder", run_generate, add_generate_options},
    {"chat", "Talk with a model in the terminal", run_chat, add_chat_options},
    {"eval", "Measure the loss of a run or a Hugging Face folder on data", run_eval, add_eval_options},
    {"score", "Compute log-probabilities of continuations, for lm_eval and other programs", run_score,
     add_score_options},
    {"report", "Show runs as a page of charts and tables, or compare them", run_report, add_report_options},
    {"top", "Watch runs: losses, speed, tiers, waits", run_top, add_top_options},
    {"compare", "Show what differs between runs: configuration, plan, speed, losses, bits", run_compare,
     add_compare_options},
    {"trace", "Write traced steps of a run for Perfetto, with the way of each payload between lanes",
     run_trace, add_trace_options},
    {"ckpt", "List, prune, verify or average the checkpoints of a run", run_ckpt, add_ckpt_options,
     kCkptActions},
    {"export", "Export a run's model as a Hugging Face folder or GGUF file", run_export, add_export_options},
    {"verify", "Train a few steps in many placements and compare the results bit by bit", run_verify,
     add_verify_options},
    {"tokenizer", "Train a tokenizer, encode and decode text, show a tokenizer", run_tokenizer,
     add_tokenizer_options, kTokenizerActions},
    {"data", "Pack training data into one file, or inspect a packed file", run_data, add_data_options,
     kDataActions},
    {"config", "Show or check a configuration, or convert one of DeepSpeed", run_config, add_config_options,
     kConfigActions},
    {"completions", "Print a script by which a shell completes strata's words", run_completions,
     add_completions_options},
    {"man", "Print a manual page as roff, or all of them as Markdown", run_man, add_man_options},
    {"complete", "Print what the last word may become", run_complete, add_complete_options, {}, true},
    {"doctor", "Check what works on this machine, and how to fix the rest", run_doctor, add_doctor_options},
};

}  // namespace

std::span<const Verb> verbs() noexcept { return kVerbs; }

CLI::App* add_verb(CLI::App& app, const Verb& verb) {
  CLI::App* sub = app.add_subcommand(std::string(verb.name), verb.doc);
  if (verb.is_hidden) sub->group("");
  return sub;
}

}  // namespace strata::cli
