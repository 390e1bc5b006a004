// The verbs: names, help, options and functions. Only this file, options/ and command_line.cpp include CLI11.
#include "verb_table.h"

#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

#include "options/options.h"
#include "verbs/verbs.h"

namespace strata::cli {
namespace {

constexpr std::string_view kTokenizerActions[] = {"train", "encode", "decode", "info"};
constexpr std::string_view kDataActions[] = {"pack", "inspect"};
constexpr std::string_view kCkptActions[] = {"ls", "prune", "verify", "average"};
constexpr std::string_view kConfigActions[] = {"show", "check", "convert", "explain", "schema", "reference"};

constexpr Verb kVerbs[] = {
    {"demo", "Train a small model in two minutes, export it, and let it write", run_demo, add_demo_options},
    {"init", "Write a configuration that fits this machine, by four questions", run_init, add_init_options},
    {"train", "Train a model, with its states distributed over GPU, RAM and NVMe", run_train,
     add_train_options},
    {"plan", "Show the memory plan of a run and whether it fits, without starting it", run_plan,
     add_machine_options},
    {"budget", "Change the budgets of a running run without stopping it", run_budget, add_budget_options},
    {"bench", "Measure this machine for forecasts", run_bench, add_bench_options},
    {"generate", "Continue prompts with a run or a Hugging Face folder", run_generate, add_generate_options},
    {"chat", "Talk with a model in the terminal", run_chat, add_chat_options},
    {"serve", "Serve a model by OpenAI's HTTP API", run_serve, add_serve_options},
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
    {"export", "Export a run or a folder as a Hugging Face folder or GGUF file", run_export,
     add_export_options},
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
