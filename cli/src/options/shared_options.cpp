// Options that several verbs have.
#include "options/shared_options.h"

#include <string>

#include <CLI/CLI.hpp>

#include <strata/config/train_schema.h>
#include <strata/model/sampling.h>
#include <strata/runtime/str.h>
#include <strata/config/task.h>

namespace strata::cli {

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

void add_run_options(CLI::App& app, Args& args) {
  app.add_option("items", args.items, "FILE (.toml or .json; default: $STRATA_CONFIG) and section.key=value")
      ->option_text("[FILE] [key=value ...]");
  app.add_option("--preset", args.preset,
                 str("Named set of values; file, environment and key=value override it: ", preset_names()));
  add_task(app, args);
}

void add_plan_options(CLI::App& app, Args& args) {
  add_run_options(app, args);
  app.add_flag("--json", args.json, "Print JSON");
}

void add_nvme_dirs(CLI::App& app, Args& args) {
  app.add_option("--nvme-dir", args.nvme_dirs, "Directories for the NVMe tier, as in memory.nvme_dir")
      ->delimiter(',')
      ->option_text("DIR[,DIR...]");
}

void add_checkpoint(CLI::App& app, Args& args, const std::string& doc) {
  app.add_option_function<std::string>(
         "--checkpoint",
         [&args](const std::string& text) {
           args.checkpoint = text == "best" ? kBestCheckpoint : std::strtoll(text.c_str(), nullptr, 10);
         },
         doc + ", or best: that of the lowest validation loss (default: the newest)")
      ->option_text("STEP|best")
      ->check([](const std::string& text) {
        const bool is_step =
            !text.empty() && text.size() < 19 && text.find_first_not_of("0123456789") == std::string::npos;
        return text == "best" || is_step ? std::string() : "it is a step or best, not " + text;
      });
}

void add_adapter(CLI::App& app, Args& args) {
  app.add_option("--adapter", args.adapter, "Folder of a PEFT adapter of the model; same as adapter.from=DIR")
      ->option_text("DIR");
}

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

void add_chat_arguments(CLI::App& app, Args& args) {
  app.add_option("--enable-thinking", args.thinks,
                 "Whether the chat template lets the model think before it answers, where templates know "
                 "enable_thinking (Qwen3, SmolLM3): true or false")
      ->option_text("BOOL");
  app.add_option("--chat-template-kwargs", args.chat_arguments,
                 "Variables of the chat template, for example {\"enable_thinking\": false}")
      ->option_text("JSON");
}

void add_sampling(CLI::App& app, Args& args) {
  app.add_option("--tokens,--max-tokens", args.tokens,
                 "Maximum number of tokens of an answer (default: 128; of chat, to the end of the text)")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--temperature", args.temperature, "Sampling temperature; 0 = always the most likely token")
      ->check(CLI::Range(0.0, 100.0));
  app.add_option("--top-k", args.top_k, "Sample from the N most likely tokens; 0 = all")
      ->check(CLI::Range(0, 1 << 20));
  app.add_option("--top-p", args.top_p, "Of these, the smallest set whose probabilities sum to P; 1 = all")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--min-p", args.min_p, "Drop tokens less likely than P times the most likely one; 0 = none")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--repetition-penalty", args.repetition_penalty,
                 "Divides positive logits of tokens of the prompt and the text, multiplies negative ones")
      ->check(CLI::Range(0.0, kMaxRepetitionPenalty));
  app.add_option("--presence-penalty", args.presence_penalty,
                 "Subtracted from the logits of tokens that the text has already")
      ->check(CLI::Range(-kMaxPenalty, kMaxPenalty));
  app.add_option("--frequency-penalty", args.frequency_penalty,
                 "Subtracted from them once for each time that the text has the token")
      ->check(CLI::Range(-kMaxPenalty, kMaxPenalty));
  app.add_option("--seed", args.seed, "Random seed; the same seed generates the same text");
}

}  // namespace strata::cli
