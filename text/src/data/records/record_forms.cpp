// The forms of records of other programs, one row each. What Alpaca's, ShareGPT's and preference records mean
// was read in LLaMA-Factory 0.9.5 (data/converter.py), axolotl 0.19.0 (prompters.py), torchtune 0.6.1
// (data/_messages.py) and TRL 1.16.0 (data_utils.py).
#include "data/records/record_forms.h"

#include <algorithm>
#include <array>
#include <utility>

#include <strata/runtime/str.h>

#include "data/records/text_prompt.h"

namespace strata::detail {
namespace {

std::string_view next_word(std::string_view& words) {
  const std::size_t end = std::min(words.find(' '), words.size());
  const std::string_view word = words.substr(0, end);
  words.remove_prefix(std::min(end + 1, words.size()));
  return word;
}

bool is_list(const RecordJson& record, const char* key) {
  const auto found = record.find(key);
  return found != record.end() && found->is_array();
}

// --- Texts ---

Outcome read_text(const RecordJson& record, bool, RecordParts& into) {
  const std::string* text = nullptr;
  if (Outcome problem = string_at(record, "text", false, text)) return problem;
  into.texts.push_back({{*text}});
  return {};
}

std::vector<Segment> prompted(const std::string& prompt, const std::string& answer) {
  if (prompt.empty()) return {{answer}};
  return {{prompt, false}, {answer}};
}

/// Conversations of a prompt and what follows it, of which the latter is learned.
Messages continued(Messages prompt, const Messages& answer) {
  for (ChatMessage& message : prompt) message.is_learned = false;
  prompt.insert(prompt.end(), answer.begin(), answer.end());
  return prompt;
}

Outcome read_completion(const RecordJson& record, bool, RecordParts& into) {
  if (is_list(record, "prompt") && is_list(record, "completion")) {
    Messages prompt, completion;
    if (Outcome problem = messages_at(record, "prompt", prompt)) return problem;
    if (Outcome problem = messages_at(record, "completion", completion)) return problem;
    into.chats.push_back(continued(std::move(prompt), completion));
    return tools_at(record, into.tools);
  }
  const std::string *prompt = nullptr, *completion = nullptr;
  if (Outcome problem = string_at(record, "prompt", true, prompt)) return problem;
  if (Outcome problem = string_at(record, "completion", !prompt->empty(), completion)) return problem;
  into.texts.push_back(prompted(*prompt, *completion));
  return {};
}

// --- Conversations ---

Outcome read_messages_form(const RecordJson& record, bool, RecordParts& into) {
  into.chats.emplace_back();
  if (Outcome problem = messages_at(record, "messages", into.chats.back())) return problem;
  return tools_at(record, into.tools);
}

/// The messages of ShareGPT; a system message of its own key comes first, unless they have one.
Outcome sharegpt_messages(const RecordJson& record, Messages& said) {
  std::string system;
  if (Outcome problem = optional_string_at(record, "system", system)) return problem;
  if (Outcome problem = messages_at(record, "conversations", said)) return problem;
  if (!system.empty() && said.front().role != "system")
    said.insert(said.begin(), ChatMessage{"system", std::move(system)});
  return {};
}

Outcome read_sharegpt(const RecordJson& record, bool, RecordParts& into) {
  into.chats.emplace_back();
  if (Outcome problem = sharegpt_messages(record, into.chats.back())) return problem;
  return tools_at(record, into.tools);
}

// --- Alpaca and its relatives ---

/// The names of the keys of a family of records.
struct InstructionKeys {
  const char *instruction, *input;
};

/// The beginning of Alpaca's own prompt.
std::string_view alpaca_task(bool has_input) {
  return has_input
             ? "Below is an instruction that describes a task, paired with an input that provides further "
               "context. Write a response that appropriately completes the request."
             : "Below is an instruction that describes a task. Write a response that appropriately "
               "completes the request.";
}

std::string alpaca_turn(const std::string& instruction, const std::string& input) {
  return str("\n\n### Instruction:\n", instruction, input.empty() ? "" : "\n\n### Input:\n", input,
             "\n\n### Response:\n");
}

/// An instruction with its earlier turns, without the answer.
struct Instruction {
  std::string system, instruction, input;
  std::vector<std::pair<std::string, std::string>> history;

  /// LLaMA-Factory joins the two by a line feed.
  std::string asked() const {
    return str(instruction, instruction.empty() || input.empty() ? "" : "\n", input);
  }
  Messages messages() const {
    Messages said;
    if (!system.empty()) said.push_back({"system", system});
    for (const auto& [question, answer] : history) {
      said.push_back({"user", question});
      said.push_back({"assistant", answer});
    }
    said.push_back({"user", asked()});
    return said;
  }
  /// Alpaca's own prompt, for models without a template.
  std::vector<Segment> segments() const {
    const bool first_has_input = history.empty() && !input.empty();
    std::string before(system.empty() ? alpaca_task(first_has_input) : std::string_view(system));
    std::vector<Segment> parts;
    for (const auto& [question, answer] : history) {
      parts.push_back({before + alpaca_turn(question, ""), false});
      parts.push_back({answer});
      before.clear();
    }
    parts.push_back({before + alpaca_turn(instruction, input), false});
    return parts;
  }
};

Outcome read_history(const RecordJson& record, Instruction& into) {
  const auto history = record.find("history");
  if (history == record.end() || history->is_null()) return {};
  const auto is_turn = [](const RecordJson& turn) {
    return turn.is_array() && turn.size() == 2 && turn[0].is_string() && turn[1].is_string();
  };
  if (!history->is_array() || !std::all_of(history->begin(), history->end(), is_turn))
    return Problem{"history", "'history' must be an array of [question, answer]"};
  for (const RecordJson& turn : *history)
    into.history.emplace_back(turn[0].get<std::string>(), turn[1].get<std::string>());
  return {};
}

Outcome read_instruction(const RecordJson& record, InstructionKeys keys, Instruction& into) {
  const std::string* instruction = nullptr;
  if (Outcome problem = optional_string_at(record, keys.input, into.input)) return problem;
  if (Outcome problem = string_at(record, keys.instruction, !into.input.empty(), instruction)) return problem;
  into.instruction = *instruction;
  if (Outcome problem = optional_string_at(record, "system", into.system)) return problem;
  return read_history(record, into);
}

Outcome answered(const RecordJson& record, InstructionKeys keys, std::span<const char* const> answers,
                 bool as_text, RecordParts& into) {
  Instruction asked;
  if (Outcome problem = read_instruction(record, keys, asked)) return problem;
  for (const char* const key : answers) {
    const std::string* answer = nullptr;
    // An empty one is learned as an end at once; Alpaca's own file has dozens.
    const bool may_be_empty = answers.size() == 1;
    if (Outcome problem = string_at(record, key, may_be_empty, answer)) return problem;
    if (as_text) {
      into.texts.push_back(asked.segments());
      into.texts.back().push_back({*answer});
    } else {
      Messages said = asked.messages();
      // An earlier answer is learned once, where answers are learned, and is no part of what is compared.
      if (answers.size() > 1) said = continued(std::move(said), {});
      said.push_back({"assistant", *answer});
      into.chats.push_back(std::move(said));
    }
  }
  return {};
}

Outcome read_alpaca(const RecordJson& record, bool as_text, RecordParts& into) {
  static constexpr const char* kAnswers[] = {"output"};
  return answered(record, {"instruction", "input"}, kAnswers, as_text, into);
}
Outcome read_dolly(const RecordJson& record, bool as_text, RecordParts& into) {
  static constexpr const char* kAnswers[] = {"response"};
  return answered(record, {"instruction", "context"}, kAnswers, as_text, into);
}
Outcome read_alpaca_pair(const RecordJson& record, bool as_text, RecordParts& into) {
  static constexpr const char* kAnswers[] = {"chosen", "rejected"};
  return answered(record, {"instruction", "input"}, kAnswers, as_text, into);
}

// --- Pairs ---

/// One side of a pair as messages: a list, one message, or a text that is the assistant's.
Outcome side_at(const RecordJson& record, const char* key, Messages& said) {
  const RecordJson& side = record.at(key);
  if (side.is_object()) return read_message(side, said);
  if (!side.is_string()) return read_messages(side, key, said);
  const std::string* answer = nullptr;
  if (Outcome problem = string_at(record, key, false, answer)) return problem;
  said.push_back({"assistant", *answer});
  return {};
}

/// Two conversations of a prompt and an answer. What both sides begin with is the prompt, as in TRL; at least
/// one message of each is its answer.
void add_pair(const Messages& prompt, const Messages& chosen, const Messages& rejected, RecordParts& into) {
  // Some files have the prompt twice: by itself, and before the answers.
  const bool contain_it = !prompt.empty() && common_messages(prompt, chosen) == prompt.size() &&
                          common_messages(prompt, rejected) == prompt.size() &&
                          std::min(chosen.size(), rejected.size()) > prompt.size();
  const std::size_t shared =
      std::min(common_messages(chosen, rejected), std::min(chosen.size(), rejected.size()) - 1);
  for (const Messages* side : {&chosen, &rejected}) {
    const auto split = side->begin() + static_cast<std::ptrdiff_t>(shared);
    Messages before = contain_it ? Messages() : prompt;
    before.insert(before.end(), side->begin(), split);
    into.chats.push_back(continued(std::move(before), Messages(split, side->end())));
  }
}

Outcome read_chat_pair(const RecordJson& record, const Messages& prompt, const std::string& text_prompt,
                       RecordParts& into) {
  Messages chosen, rejected;
  if (Outcome problem = side_at(record, "chosen", chosen)) return problem;
  if (Outcome problem = side_at(record, "rejected", rejected)) return problem;
  add_text_prompt(text_prompt, chosen, rejected);
  add_pair(prompt, chosen, rejected, into);
  return {};
}

/// Where the first word begins in which two texts differ, with the space before it: TRL cuts at the letter,
/// which makes tokens that no prompt ends with.
std::size_t common_text(const std::string& a, const std::string& b) {
  std::size_t n = 0;
  const std::size_t most = std::min(a.size(), b.size()) - 1;
  while (n < most && a[n] == b[n]) ++n;
  while (n > 0 && a[n - 1] != ' ' && a[n - 1] != '\n') --n;
  return n > 0 && a[n - 1] == ' ' ? n - 1 : n;
}

Outcome read_text_pair(const RecordJson& record, RecordParts& into) {
  const std::string *chosen = nullptr, *rejected = nullptr, *prompt = nullptr;
  if (Outcome problem = string_at(record, "chosen", false, chosen)) return problem;
  if (Outcome problem = string_at(record, "rejected", false, rejected)) return problem;
  if (record.contains("prompt")) {
    if (Outcome problem = string_at(record, "prompt", true, prompt)) return problem;
    into.texts = {prompted(*prompt, *chosen), prompted(*prompt, *rejected)};
    return {};
  }
  const std::size_t n = common_text(*chosen, *rejected);
  for (const std::string* side : {chosen, rejected})
    into.texts.push_back(prompted(side->substr(0, n), side->substr(n)));
  return {};
}

Outcome read_pair(const RecordJson& record, bool, RecordParts& into) {
  const bool is_text = record.at("chosen").is_string() && !is_list(record, "prompt");
  if (is_text) return read_text_pair(record, into);
  Messages prompt;
  std::string text;
  if (is_list(record, "prompt")) {
    if (Outcome problem = messages_at(record, "prompt", prompt)) return problem;
  } else if (Outcome problem = optional_string_at(record, "prompt", text)) {
    return problem;
  }
  if (!is_list(record, "chosen") && prompt.empty() && text.empty())
    return Problem{"no prompt",
                   str("'chosen' is ", kind_of(record.at("chosen")), ", which needs a 'prompt'")};
  if (Outcome problem = tools_at(record, into.tools)) return problem;
  return read_chat_pair(record, prompt, text, into);
}

Outcome read_sharegpt_pair(const RecordJson& record, bool, RecordParts& into) {
  Messages prompt;
  if (Outcome problem = sharegpt_messages(record, prompt)) return problem;
  if (Outcome problem = tools_at(record, into.tools)) return problem;
  return read_chat_pair(record, prompt, {}, into);
}

constexpr std::array<RecordForm, 9> kForms = {{
    {"text record", false, "text", read_text},
    {"prompt-completion record", false, "prompt completion tools?", read_completion},
    {"conversation", false, "messages tools?", read_messages_form},
    {"ShareGPT conversation", false, "conversations system? tools?", read_sharegpt},
    {"Alpaca record", false, "instruction input? output system? history?", read_alpaca, true},
    {"Dolly record", false, "instruction context? response", read_dolly, true},
    // If two pairs fit a record, the later one has more keys.
    {"preference pair", true, "prompt? chosen rejected tools?", read_pair},
    {"ShareGPT preference pair", true, "conversations chosen rejected system? tools?", read_sharegpt_pair},
    {"Alpaca preference pair", true, "instruction input? chosen rejected system? history?", read_alpaca_pair,
     true},
}};

/// "'prompt' and 'completion'": the keys that a record of the form has.
std::string needed_keys(const RecordForm& form) {
  std::vector<std::string_view> needed;
  for (std::string_view keys = form.keys; !keys.empty();)
    if (const std::string_view key = next_word(keys); !key.ends_with('?')) needed.push_back(key);
  std::string text;
  for (std::size_t i = 0; i < needed.size(); ++i)
    text += str(i == 0 ? "" : i + 1 == needed.size() ? " and " : ", ", "'", needed[i], "'");
  return text;
}

std::string known_keys(bool pairs) {
  std::string text;
  const auto n =
      std::count_if(kForms.begin(), kForms.end(), [&](const auto& f) { return f.is_pair == pairs; });
  std::ptrdiff_t i = 0;
  for (const RecordForm& form : kForms) {
    if (form.is_pair != pairs) continue;
    text += str(i == 0 ? "" : i + 1 == n ? ", or " : ", ", needed_keys(form));
    ++i;
  }
  return text;
}

Problem of_file(const std::string& message) { return {std::string(kOfFile), message}; }

}  // namespace

std::span<const RecordForm> record_forms() noexcept { return kForms; }

std::string missing_key(const RecordJson& record, const RecordForm& form) {
  for (std::string_view keys = form.keys; !keys.empty();)
    if (std::string key(next_word(keys)); !key.ends_with('?') && !record.contains(key)) return key;
  return {};
}

std::vector<std::string> keys_read(const RecordForm& form) {
  std::vector<std::string> all;
  for (std::string_view keys = form.keys; !keys.empty();) {
    const std::string_view key = next_word(keys);
    all.emplace_back(key.substr(0, key.size() - (key.ends_with('?') ? 1 : 0)));
  }
  return all;
}

Outcome find_form(const RecordJson& record, RecordUse use, const RecordForm*& found) {
  const RecordForm *text = nullptr, *pair = nullptr;
  std::string others;
  for (const RecordForm& form : kForms) {
    if (!missing_key(record, form).empty()) continue;
    if (form.is_pair) {
      pair = &form;
    } else if (text == nullptr || (text->read == read_text && form.may_be_text)) {
      text = &form;  // Alpaca's own files have the whole text beside its parts
    } else {
      others += str(others.empty() ? "" : ", ", needed_keys(form));
    }
  }
  found = use == RecordUse::pairs || (use == RecordUse::any && pair != nullptr) ? pair : text;
  if (use == RecordUse::pairs && pair == nullptr)
    return of_file(str("the first record must be a pair: ", known_keys(true), "; ", keys_of(record)));
  if (found == nullptr && pair != nullptr)
    return of_file(
        "its records are pairs, with 'chosen' and 'rejected': train with --task reward or --task dpo");
  if (found == nullptr)
    return of_file(str("the first record must have ", known_keys(false), "; ", keys_of(record)));
  if (found == text && !others.empty())
    return of_file(str("the first record must be of one kind, but has ", needed_keys(*text), ", and also ",
                       others, "; ", keys_of(record)));
  return {};
}

}  // namespace strata::detail
