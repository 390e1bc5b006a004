// merges.txt, tokenizer_config.json, generation_config.json and chat templates; the first byte selects which.
#include <strata/text/chat.h>
#include <strata/text/tokenizer.h>

#include "fuzz.h"

namespace {

std::string vocabulary() {
  const std::vector<std::string_view> texts = {"the theme of the thesis, the theory"};
  return strata::must(strata::Tokenizer::train(texts, 262)).to_json();
}
/// The JSON object of the key "vocab".
std::string vocab_json() {
  const std::string json = vocabulary();
  const std::size_t begin = json.find('{', json.find("\"vocab\""));
  return json.substr(begin, json.rfind('}', json.find("\"merges\"")) + 1 - begin);
}

void fuzz_chat(std::string_view input) {
  const auto chat =
      strata::ChatTemplate::parse(std::string(input), {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  if (!chat) return;
  const std::vector<strata::ChatMessage> messages = {
      {"user", std::string(input)}, {"assistant", std::string(input.substr(input.size() / 2))}};
  const auto text = strata::apply_chat_template(*chat, messages);
  if (!text) return;
  for (const strata::ChatRange& range : text->of_template)
    STRATA_ASSERT(range.begin < range.end && range.end <= text->text.size(), "a range past the text");
  for (const strata::ChatAnswer& answer : text->answers)
    STRATA_ASSERT(
        answer.begin <= answer.said_end && answer.said_end <= answer.end && answer.end <= text->text.size(),
        "an answer past the text");
}

}  // namespace

STRATA_FUZZ_TARGET(input) {
  static const std::string vocab = vocab_json();
  if (input.empty()) return;
  const std::string rest(input.substr(1));
  switch (input[0] % 4) {
    case 0:
      (void)strata::Tokenizer::from_vocab_and_merges(vocab, rest).has_value();
      break;
    case 1:
      if (const auto config = strata::parse_tokenizer_config(rest))
        (void)strata::Tokenizer::from_vocab_and_merges(vocab, "", *config).has_value();
      break;
    case 2:
      (void)strata::parse_generation_config(rest).has_value();
      break;
    default:
      fuzz_chat(rest);
  }
}
