// Options of the verbs about tokenizers, data, configurations, and strata itself.
#include "options/options.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>

#include <strata/runtime/str.h>

#include "args.h"
#include "options/shared_options.h"

namespace strata::cli {

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
  CLI::App* pack = app.add_subcommand("pack", "Turn text files and files of records into one file of tokens");
  pack->add_option("items", args.items, "Files, and folders of them")->option_text("FILE ...");
  pack->add_option("-o,--out", args.out_dir, "File to write");
  CLI::App* inspect = app.add_subcommand(
      "inspect", "Show the first record as it is trained, or the contents of a packed file and one sample");
  inspect
      ->add_option("items", args.items,
                   "Data files, or a configuration (.toml, section.key=value), or one packed file")
      ->option_text("FILE ... [key=value ...]");
  inspect->add_option("--sample", args.sample, "Index of the sample of a packed file to show")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 62));
  add_task(*inspect, args);
  inspect->add_flag("--json", args.json, "Print JSON; of a record with token ids and loss mask");
  for (CLI::App* sub : {pack, inspect}) {
    sub->add_option("-t,--tokenizer,--model", args.tokenizer,
                    "tokenizer.json to use, or a model's folder, whose chat template is also used");
    sub->add_option("--chat-template", args.chat_template,
                    "Chat template of conversations, as in data.chat_template");
    sub->add_option("--seq", args.seq, "Tokens per sequence")->check(CLI::Range(1, 1 << 20));
    sub->callback([&args, name = sub->get_name()] { args.action = name; });
  }
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
  CLI::App* convert = app.add_subcommand(
      "convert", "Turn a file of DeepSpeed, axolotl or LLaMA-Factory into a configuration");
  CLI::Option* file = convert
                          ->add_option("items", args.items,
                                       "ds_config.json of DeepSpeed, or .yaml of axolotl or LLaMA-Factory")
                          ->option_text("FILE")
                          ->expected(0, 1);
  convert->add_flag("--rows", args.rows, "Print what becomes of every key of DeepSpeed")->excludes(file);
  convert->add_flag("--json", args.json, "Print JSON");
  convert->callback([&args] { args.action = "convert"; });
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

}  // namespace strata::cli
