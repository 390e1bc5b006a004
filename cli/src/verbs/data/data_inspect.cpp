#include "verbs/data/data_inspect.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <strata/config/load_config.h>
#include <strata/runtime/config/json.h>
#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>
#include <strata/runtime/terminal_text.h>
#include <strata/config/objective.h>
#include <strata/config/chat_choice.h>
#include <strata/batches/first_record.h>

#include "print.h"

namespace strata::cli {
namespace {

/// The files that are inspected, or those of a run, and what encodes them.
struct Inspected {
  std::vector<std::string> files;
  TextCodec codec;
  bool as_prompt = false;
  RecordUse use = RecordUse::any;
  std::int64_t seq = 0;  ///< 0: the data decide it
};

bool names_config(const Args& args) {
  return std::any_of(args.items.begin(), args.items.end(),
                     [](const std::string& item) { return item.ends_with(".toml") || is_assignment(item); });
}

Result<Inspected> of_config(const Args& args, Io& io) {
  STRATA_TRY_ASSIGN(const LoadedConfig loaded, load_config(args));
  const TrainConfig& config = loaded.config;
  STRATA_TRY_ASSIGN(std::vector<std::string> files, locate_data_files(config.data.train, "data.train"));
  STRATA_TRY_ASSIGN(TextCodec codec, open_codec(config, files, io));
  const std::int64_t seq = config.model.seq_is_most ? 0 : config.model.seq;
  return Inspected{std::move(files), std::move(codec), objective_of(config).data == RunData::prompts,
                   record_use(config), seq};
}

Result<Inspected> of_files(const Args& args, Io& io) {
  STRATA_TRY_ASSIGN(std::vector<std::string> files, locate_data_files(args.items, "data inspect"));
  if (!io.exists(args.tokenizer))
    return Status::error(Code::invalid,
                         str("there is no ", args.tokenizer,
                             ": name the model's folder with --model DIR, or a tokenizer with -t"));
  STRATA_TRY_ASSIGN(Tokenizer tokenizer, Tokenizer::load(io, args.tokenizer));
  STRATA_TRY_ASSIGN(ChatChoice chat, choose_chat(io, args.chat_template, args.tokenizer));
  const bool as_prompt = args.task == "grpo" || args.task == "ppo";
  return Inspected{std::move(files), TextCodec{std::move(tokenizer), std::move(chat)}, as_prompt};
}

/// The text of a part with what is trained marked: green, or in double brackets.
std::string marked_text(const ShownRecord::Part& part, bool in_colour) {
  std::string text;
  for (const ShownRecord::Run& run : part.runs) {
    const std::string shown = terminal_text(run.text);
    text += !run.is_trained ? shown : in_colour ? str("\x1b[32m", shown, "\x1b[0m") : str("[[", shown, "]]");
  }
  return text.ends_with('\n') ? text : text + "\n";
}

std::string part_text(const ShownRecord& record, const ShownRecord::Part& part, const Inspected& of,
                      bool in_colour) {
  const auto n = static_cast<std::int64_t>(part.ids.size());
  std::string text =
      str("record   ", part.name.empty() ? "1" : str("1, ", part.name), ": ", plural_grouped(n, "token"),
          record.is_cut ? " of its beginning" : "", ", ", grouped(part.n_trained()), " of them trained");
  if (n > 0)
    text += terminal_text(str(", from ", shown_token(of.codec.tokenizer, part.ids.front()), " to ",
                              shown_token(of.codec.tokenizer, part.ids.back())));
  if (of.seq > 0 && n > of.seq) text += str("; longer than model.seq = ", of.seq);
  return str(text, "\n\n", marked_text(part, in_colour), "\n");
}

std::string numbers(const ShownRecord::Part& part, bool mask) {
  std::string text;
  for (std::size_t i = 0; i < part.ids.size(); ++i)
    text += str(i == 0 ? "" : ", ", mask ? static_cast<std::int32_t>(part.loss_mask[i]) : part.ids[i]);
  return text;
}

std::string record_json(const std::string& file, const ShownRecord& record) {
  std::string parts;
  for (const ShownRecord::Part& part : record.parts) {
    std::string text;
    for (const ShownRecord::Run& run : part.runs) text += run.text;
    parts += fmt::format(
        "{}\n    {{\"name\": {}, \"tokens\": {}, \"loss_tokens\": {},\n     \"ids\": [{}],\n     "
        "\"loss_mask\": [{}],\n"
        "     \"text\": {}}}",
        parts.empty() ? "" : ",", json_string(part.name), part.ids.size(), part.n_trained(),
        numbers(part, false), numbers(part, true), json_string(text));
  }
  return fmt::format("  {{\"file\": {}, \"form\": {}, \"documents\": [{}]}}", json_string(file),
                     json_string(record.form), parts);
}

bool wants_colour(const Args& args) {
  const auto forbids = [](const std::string& variable) {
    return (variable.starts_with("NO_COLOR=") && variable.size() > 9) || variable == "TERM=dumb";
  };
  return is_terminal(args.out) && std::none_of(args.environment.begin(), args.environment.end(), forbids);
}

}  // namespace

Result<std::string> inspect_records(const Args& args, Io& io) {
  STRATA_TRY_ASSIGN(const Inspected of, names_config(args) ? of_config(args, io) : of_files(args, io));
  const bool in_colour = wants_colour(args);
  std::string text, rows;
  for (const std::string& file : of.files) {
    STRATA_TRY_ASSIGN(const ShownRecord record, first_record(io, of.codec, file, of.as_prompt, of.use));
    rows += str(rows.empty() ? "" : ",\n", record_json(file, record));
    text += terminal_text(str("data     ", file, ": ", record.form)) + "\n";
    for (const ShownRecord::Part& part : record.parts) text += part_text(record, part, of, in_colour);
  }
  return args.json ? str("[\n", rows, "\n]\n") : text;
}

}  // namespace strata::cli
