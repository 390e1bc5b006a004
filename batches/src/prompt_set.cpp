#include <strata/batches/prompt_set.h>

#include <strata/text/model_rows.h>
#include <strata/runtime/error_list.h>
#include <strata/runtime/str.h>

namespace strata {

Result<PromptSet> PromptSet::read(const std::vector<std::string>& files, const TextCodec& codec,
                                  std::int64_t max_tokens, std::int64_t vocab, Io& io) {
  PromptSet set;
  ErrorList bad;
  const ChatTemplate chat = codec.chat.chat.has_value() ? *codec.chat.chat : ChatTemplate();
  const std::vector<std::int32_t> ends = answer_ends(codec.tokenizer, chat);
  for (const std::string& file : files) {
    auto prompts = read_prompts(io, file, [](std::string_view) {});  // rewards may use what is said there
    bad.add(prompts.status());
    for (std::size_t i = 0; prompts.has_value() && i < prompts->size(); ++i) {
      Prompt& prompt = (*prompts)[i];
      if (!prompt.messages.empty() && !codec.chat.chat.has_value()) return codec.chat.chat.status();
      auto tokens = encode_prompt(codec.tokenizer, prompt, chat, ends);
      Status status = tokens.status();
      if (status.is_ok()) status = check_token_rows(codec.tokenizer, tokens->ids, vocab);
      if (!status.is_ok()) {
        bad.add(status.annotate(str(file, ": prompt ", i + 1)));
        break;
      }
      if (std::ssize(tokens->ids) > max_tokens) {
        ++set.n_left_out_;
        continue;
      }
      set.prompts_.push_back(std::move(prompt));
      set.tokens_.push_back(*std::move(tokens));
    }
  }
  STRATA_TRY(bad.status());
  if (set.size() > 0) return set;
  return Status::error(Code::invalid, str("all ", set.n_left_out_, " prompts have more than ", max_tokens,
                                          " tokens (align.max_prompt)"));
}

Digest PromptSet::digest() const {
  Digester digester;
  for (std::size_t i = 0; i < size(); ++i) {
    digester.update(std::as_bytes(std::span(tokens_[i].ids)));
    digester.update(std::as_bytes(std::span(tokens_[i].stop_ids)));
    digester.update(std::as_bytes(std::span(prompts_[i].record)));
    const std::uint64_t sizes[] = {tokens_[i].ids.size(), tokens_[i].stop_ids.size(),
                                   prompts_[i].record.size()};
    digester.update(std::as_bytes(std::span(sizes)));
  }
  return digester.digest();
}

}  // namespace strata
