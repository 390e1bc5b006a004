#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <strata/text/chat.h>
#include <strata/text/tokenizer.h>
#include <strata/serve/api_error.h>
#include <strata/serve/api_request.h>
#include <strata/infer/generation_source.h>

namespace strata {

/// The properties of its model that a service needs.
struct ServedModel {
  std::string name;
  std::vector<std::string> adapters;  ///< names that a request may give instead of the model's
  Tokenizer tokenizer;
  Result<ChatTemplate> chat;                 ///< an error matters only to conversations
  std::vector<std::int32_t> turn_ends = {};  ///< tokens that end an answer: answer_ends() of `chat`
  std::vector<std::int32_t> stop_ids;        ///< tokens that end any text
  std::int32_t context = 0;                  ///< tokens of a sequence, prompt included
  /// Whether special tokens in the text of a completion's prompt are these tokens, as in vLLM and llama.cpp.
  SpecialTokens in_prompts = SpecialTokens::recognised;
  /// As GenerationSource::choose_adapter().
  std::function<Result<std::int32_t>(const std::optional<std::string>&)> choose_adapter;
};

/// The name of a model's folder.
std::string model_name_of(const std::string& path);
/// The model of a source, which must outlive it. Errors: `invalid` if an adapter has the model's name.
Result<ServedModel> served_model(const GenerationSource& source, const std::string& name,
                                 std::int32_t context);

/// A prompt as the sequence that the model continues.
struct ServedPrompt {
  std::string text;  ///< the text with which the answer may begin (echo)
  std::vector<std::int32_t> ids, stop_ids;
  /// The number of `ids` at the beginning, such as BOS, that the text does not have.
  std::size_t n_unwritten = 0;
};
/// Encode as `strata generate` does; a text may have special tokens and begin with BOS itself. Errors: 400
/// for an empty prompt, ids outside of the vocabulary, a conversation that the template does not allow, and a
/// prompt longer than the context.
ApiResult<ServedPrompt> encode_input(const ServedModel& model, const PromptInput& input);
/// `template_arguments`: of the chat template, beside the model's own; empty: none.
ApiResult<ServedPrompt> encode_messages(const ServedModel& model, const std::vector<ChatMessage>& messages,
                                        const std::string& template_arguments = {});

/// That a bias is for a token that is not in the vocabulary: 400; empty: all are.
std::optional<ApiError> check_bias(const ServedModel& model, const std::vector<LogitBias>& bias);

/// The name and the adapter that a request asks for.
struct ServedChoice {
  std::string name;
  std::int32_t adapter = -1;
};
/// Without a name, the default adapter, or else the model itself. Errors: 404 for another name.
ApiResult<ServedChoice> choose_model(const ServedModel& model, const std::optional<std::string>& name);

}  // namespace strata
