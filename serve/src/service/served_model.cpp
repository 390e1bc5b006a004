#include <strata/serve/served_model.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include <strata/text/prompts.h>
#include <strata/text/utf8_stream.h>
#include <strata/runtime/config/suggest.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

tl::unexpected<ApiError> bad_prompt(const char* field, std::string why, std::string code = {}) {
  return tl::make_unexpected(ApiError{400, std::move(why), field, std::move(code)});
}

ApiResult<ServedPrompt> encoded(const ServedModel& model, const std::string& text) {
  const Tokenizer& tokenizer = model.tokenizer;
  const std::vector<std::int32_t>& prefix = tokenizer.spec().prefix;
  ServedPrompt prompt{text, tokenizer.encode(text, model.in_prompts), {}, 0};
  const bool begun =
      prompt.ids.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), prompt.ids.begin());
  if (!begun && tokenizer.markers().encloses) {
    prompt.ids = tokenizer.encode(text, model.in_prompts, AddSpecialTokens::yes);
    prompt.n_unwritten = prefix.size();
  }
  if (prompt.ids.empty())
    return bad_prompt("prompt", "the prompt is empty; give at least one character to continue");
  return prompt;
}

ApiResult<ServedPrompt> decoded(const ServedModel& model, const std::vector<std::int32_t>& ids) {
  for (const std::int32_t id : ids)
    if (id >= model.tokenizer.vocab_size())
      return bad_prompt("prompt", str("token ", id, " is out of range; the vocabulary has ",
                                      model.tokenizer.vocab_size(), " tokens"));
  const auto bytes = model.tokenizer.decode(ids);
  if (!bytes.has_value()) return bad_prompt("prompt", std::string(bytes.status().message()));
  Utf8Stream utf8;
  std::string text = utf8.push(*bytes);
  text += utf8.finish();
  return ServedPrompt{std::move(text), ids, {}, 0};
}

/// Adds the tokens that end any text to the prompt, unless it is too long.
ApiResult<ServedPrompt> checked(const ServedModel& model, ApiResult<ServedPrompt> prompt, const char* field) {
  if (!prompt.has_value()) return prompt;
  if (prompt->ids.size() > static_cast<std::size_t>(model.context))
    return bad_prompt(field,
                      str("the prompt has ", prompt->ids.size(), " tokens, but the context is ",
                          model.context, ": shorten it, or start the server with a larger --context"),
                      "context_length_exceeded");
  prompt->stop_ids.insert(prompt->stop_ids.end(), model.stop_ids.begin(), model.stop_ids.end());
  return prompt;
}

}  // namespace

std::string model_name_of(const std::string& path) {
  std::filesystem::path folder = std::filesystem::path(path).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();  // it ends with a slash
  if (folder.filename() == "." || folder.filename() == ".." || folder.empty()) {
    std::error_code failed;
    folder = std::filesystem::weakly_canonical(path, failed);
  }
  const std::string name = folder.filename();
  return name.empty() ? "model" : name;
}

Result<ServedModel> served_model(const GenerationSource& source, const std::string& name,
                                 std::int32_t context) {
  ServedModel model{.name = name,
                    .adapters = {},
                    .tokenizer = source.tokenizer(),
                    .chat = source.chat(),
                    .stop_ids = source.stop_ids(),
                    .context = context,
                    .choose_adapter = [&source](const std::optional<std::string>& adapter) {
                      return source.choose_adapter(adapter);
                    }};
  if (model.chat.has_value()) model.turn_ends = answer_ends(model.tokenizer, *model.chat);
  const std::size_t n = source.adapters() == nullptr ? 0 : source.adapters()->size();
  for (std::size_t i = 0; i < n; ++i)
    model.adapters.emplace_back(source.adapters()->name(static_cast<std::int32_t>(i)));
  if (std::find(model.adapters.begin(), model.adapters.end(), name) == model.adapters.end()) return model;
  return Status::error(Code::invalid, str("--adapter ", name,
                                          "=... has the name of the model, by which "
                                          "requests choose it; give the model another one with --name"));
}

ApiResult<ServedPrompt> encode_input(const ServedModel& model, const PromptInput& input) {
  const auto* const text = std::get_if<std::string>(&input);
  return checked(
      model,
      text != nullptr ? encoded(model, *text) : decoded(model, std::get<std::vector<std::int32_t>>(input)),
      "prompt");
}

ApiResult<ServedPrompt> encode_messages(const ServedModel& model, const std::vector<ChatMessage>& messages,
                                        const std::string& template_arguments) {
  if (!model.chat.has_value()) return bad_prompt("messages", std::string(model.chat.status().message()));
  auto chat = template_arguments.empty() ? model.chat : model.chat->with_arguments(template_arguments);
  if (!chat.has_value()) return bad_prompt("chat_template_kwargs", std::string(chat.status().message()));
  auto tokens = encode_prompt(model.tokenizer, {{}, messages}, *chat, model.turn_ends);
  if (!tokens.has_value()) return bad_prompt("messages", std::string(tokens.status().message()));
  return checked(model, ServedPrompt{{}, std::move(tokens->ids), std::move(tokens->stop_ids), 0}, "messages");
}

std::optional<ApiError> check_bias(const ServedModel& model, const std::vector<LogitBias>& bias) {
  for (const LogitBias& each : bias)
    if (each.id >= model.tokenizer.vocab_size())
      return ApiError{400,
                      str("'logit_bias' has token ", each.id, ", which is out of range; the vocabulary has ",
                          model.tokenizer.vocab_size(), " tokens"),
                      "logit_bias", "invalid_value"};
  return std::nullopt;
}

ApiResult<ServedChoice> choose_model(const ServedModel& model, const std::optional<std::string>& name) {
  if (name && *name == model.name) return ServedChoice{model.name, -1};
  const bool is_adapter =
      name && std::find(model.adapters.begin(), model.adapters.end(), *name) != model.adapters.end();
  if (name && !is_adapter) {
    std::vector<std::string_view> known = {model.name};
    known.insert(known.end(), model.adapters.begin(), model.adapters.end());
    return tl::make_unexpected(
        ApiError{404,
                 str("there is no model '", name->substr(0, 80), "' here; GET /v1/models lists the names",
                     did_you_mean(name->substr(0, 80), known)),
                 "model", "model_not_found"});
  }
  const auto adapter = model.choose_adapter(name);
  if (!adapter.has_value()) return tl::make_unexpected(api_error(adapter.status()));
  if (*adapter < 0) return ServedChoice{model.name, -1};
  return ServedChoice{model.adapters[static_cast<std::size_t>(*adapter)], *adapter};
}

}  // namespace strata
