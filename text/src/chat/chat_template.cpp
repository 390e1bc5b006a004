#include <strata/text/chat.h>

#include <algorithm>
#include <array>
#include <optional>

#include <strata/runtime/assert.h>
#include <strata/runtime/config/suggest.h>
#include <strata/runtime/str.h>

#include "chat/chat_formats.h"
#include "chat/chat_values.h"
#include "chat/parsed_template.h"
#include "jinja/parser.h"
#include "text/large_integer.h"
#include <strata/runtime/config/strict_json.h>

namespace strata {
namespace {

using detail::chat_formats;
using detail::ChatFormat;

constexpr std::size_t kMaxJinjaBytes = std::size_t{1} << 20;

std::tm default_day() {
  std::tm day{};
  day.tm_year = 2024 - 1900;
  day.tm_mon = 6;
  day.tm_mday = 26;
  day.tm_wday = 5;
  day.tm_yday = 207;
  return day;
}

/// The variables that a conversation sets, which arguments cannot replace.
constexpr std::array<std::string_view, 4> kOwnVariables = {"messages", "tools", "documents",
                                                           "add_generation_prompt"};

Digest digest_of(const std::string& jinja, const SpecialWords& words, std::string_view arguments = {}) {
  Digester digester;
  const auto add = [&](std::string_view text) {
    const std::uint64_t size = text.size();
    digester.update(std::as_bytes(std::span(&size, 1)));
    digester.update(text);
  };
  add(jinja);
  for (const auto& [name, token] : words) {
    add(name);
    add(token);
  }
  if (!arguments.empty()) add(arguments);
  return digester.digest();
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    out.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

Result<std::shared_ptr<ChatTemplate::Parsed>> parse_text(const std::string& jinja,
                                                         const SpecialWords& words) {
  if (jinja.size() > kMaxJinjaBytes)
    return Status::error(Code::invalid, str("the chat template has ", jinja.size(), " bytes, at most ",
                                            kMaxJinjaBytes, " are read"));
  auto parsed = std::make_shared<ChatTemplate::Parsed>();
  parsed->jinja = jinja;
  auto body = detail::jinja::parse(jinja);
  if (!body.has_value()) return body.status().annotate("the chat template");
  parsed->body = std::make_shared<const detail::jinja::Body>(*std::move(body));
  parsed->words = words;
  parsed->day = default_day();
  parsed->digest = digest_of(jinja, words);
  return parsed;
}

std::shared_ptr<const ChatTemplate::Parsed> parsed_format(const ChatFormat& format) {
  auto parsed = parse_text(std::string(format.jinja), {});
  STRATA_ASSERT(parsed.has_value(), "a built-in template is no Jinja", format.name);
  (*parsed)->name = format.name;
  (*parsed)->markers = words_of(format.markers);
  return *std::move(parsed);
}

/// The built-in templates in the order of chat_formats(), parsed once.
std::shared_ptr<const ChatTemplate::Parsed> built_in(std::size_t i) {
  static const std::vector<std::shared_ptr<const ChatTemplate::Parsed>> all = [] {
    std::vector<std::shared_ptr<const ChatTemplate::Parsed>> made;
    for (const ChatFormat& format : chat_formats()) made.push_back(parsed_format(format));
    return made;
  }();
  return all[i];
}

/// Conversations that tell templates apart: with and without a system message, with several turns, white
/// space, reasoning, and an empty answer.
std::vector<std::vector<ChatMessage>> probes() {
  const ChatMessage system{"system", " Be brief.\n"}, question{"user", " Why? \n"},
      answer{"assistant", "\nSo. "};
  const ChatMessage thought{"assistant", "<think>\nHm.\n</think>\n\nYes."}, empty{"assistant", ""};
  return {{question},
          {question, answer},
          {system, question},
          {system, question, answer, question, thought},
          {question, thought, question, answer, question},
          {question, empty},
          {system}};
}

/// Renders a probe; nullopt if the template refuses it.
std::optional<std::string> probed(const ChatTemplate& chat, const std::vector<ChatMessage>& probe,
                                  bool asked) {
  const auto values = detail::ChatValues::of(probe, {});
  if (!values.has_value()) return std::nullopt;
  const auto text = detail::written(chat, *values, probe.size(), asked);
  if (!text.has_value()) return std::nullopt;
  return text->bytes();
}

std::vector<std::optional<std::string>> all_probed(const ChatTemplate& chat) {
  std::vector<std::optional<std::string>> texts;
  for (const auto& probe : probes())
    for (const bool asked : {false, true}) texts.push_back(probed(chat, probe, asked));
  return texts;
}

/// The built-in template that writes the same for all probes; null if there is none.
const ChatFormat* same_format(const ChatTemplate& chat) {
  const std::vector<std::optional<std::string>> texts = all_probed(chat);
  for (const ChatFormat& format : chat_formats())
    if (texts == all_probed(ChatTemplate::named(format.name).value())) return &format;
  return nullptr;
}

}  // namespace

ChatTemplate::ChatTemplate() : parsed_(built_in(0)) {}

Result<ChatTemplate> ChatTemplate::named(std::string_view name) {
  std::vector<std::string_view> names;
  for (std::size_t i = 0; i < chat_formats().size(); ++i) {
    if (chat_formats()[i].name == name) return ChatTemplate(built_in(i));
    names.push_back(chat_formats()[i].name);
  }
  return Status::error(Code::unsupported,
                       str("no chat template is called '", name.substr(0, 80),
                           "'; choose one by name: ", chat_template_names(), did_you_mean(name, names)));
}

Result<ChatTemplate> ChatTemplate::parse(const std::string& jinja, const SpecialWords& words) {
  STRATA_TRY_ASSIGN(std::shared_ptr<Parsed> parsed, parse_text(jinja, words));
  parsed->name = kOwn;
  if (const ChatFormat* same = same_format(ChatTemplate(parsed))) parsed->name = same->name;
  return ChatTemplate(std::move(parsed));
}

const std::string& ChatTemplate::name() const noexcept { return parsed_->name; }
const std::string& ChatTemplate::jinja() const noexcept { return parsed_->jinja; }
const Digest& ChatTemplate::digest() const noexcept { return parsed_->digest; }
bool ChatTemplate::uses_date() const noexcept {
  return parsed_->jinja.find("strftime_now") != std::string::npos;
}
ChatTemplate ChatTemplate::with_date(const std::tm& day) const {
  auto other = std::make_shared<Parsed>(*parsed_);
  other->day = day;
  return ChatTemplate(std::move(other));
}

Result<ChatTemplate> ChatTemplate::with_arguments(const std::string& json) const {
  const auto refuse = [](const std::string& why) {
    return Status::error(Code::invalid, str("arguments of the chat template: ", why));
  };
  const auto object = detail::parse_strict_json(json);
  if (!object.has_value()) return refuse(std::string(object.status().message()));
  if (!object->is_object())
    return refuse(str(json.substr(0, 80), " is no JSON object as {\"enable_thinking\": false}"));
  if (const auto large = detail::large_integer_in(json)) return refuse(why_refused(*large));
  auto other = std::make_shared<Parsed>(*parsed_);
  for (const auto& [name, value] : object->items()) {
    const bool is_word = std::any_of(parsed_->words.begin(), parsed_->words.end(),
                                     [&name = name](const auto& word) { return word.first == name; });
    if (is_word || std::find(kOwnVariables.begin(), kOwnVariables.end(), name) != kOwnVariables.end())
      return refuse(str("'", name.substr(0, 80), "' is set by the conversation or the tokenizer"));
    other->arguments[name] = value;
  }
  other->digest =
      digest_of(other->jinja, other->words, other->arguments.empty() ? "" : other->arguments.dump());
  return ChatTemplate(std::move(other));
}

std::string chat_template_names() {
  std::string names;
  for (const ChatFormat& format : chat_formats()) names += str(names.empty() ? "" : ", ", format.name);
  return names;
}

bool is_chat_role(std::string_view role) noexcept {
  return role == "system" || role == "user" || role == "assistant" || role == "tool";
}

}  // namespace strata
