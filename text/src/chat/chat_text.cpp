// Applies a template and finds in the text what the assistant wrote. A template only says what is written,
// not whose turn it is, so the borders of answers follow from the authors of the bytes and from what the
// template writes for the beginning of the conversation.
#include <strata/text/chat.h>

#include <algorithm>
#include <optional>

#include <strata/runtime/str.h>

#include "chat/chat_values.h"
#include "chat/parsed_template.h"

namespace strata {
namespace {

using detail::ChatValues;
using detail::jinja::kTemplate;
using detail::jinja::stripped;
using detail::jinja::Text;

/// Where the bytes of each author are: from the first to behind the last one; empty if there are none.
std::vector<ChatRange> contents_of(const Text& text, std::size_t n_authors) {
  std::vector<ChatRange> out(n_authors);
  std::size_t begin = 0;
  for (const Text::Stretch& stretch : text.stretches()) {
    if (stretch.author >= 0) {
      ChatRange& range = out[static_cast<std::size_t>(stretch.author)];
      if (range.begin == range.end) range.begin = begin;
      range.end = stretch.end;
    }
    begin = stretch.end;
  }
  return out;
}

ChatRange joined(ChatRange a, ChatRange b) {
  if (a.begin == a.end) return b;
  if (b.begin == b.end) return a;
  return {std::min(a.begin, b.begin), std::max(a.end, b.end)};
}

/// Where the bytes of each message are, whatever they are of.
std::vector<ChatRange> said_of(const std::vector<ChatRange>& by_author, const detail::ChatAuthors& authors) {
  std::vector<ChatRange> out(authors.n);
  for (std::size_t i = 0; i < authors.n; ++i)
    for (const auto author : {authors.content(i), authors.more(i), authors.reasoning(i)})
      out[i] = joined(out[i], by_author[static_cast<std::size_t>(author)]);
  return out;
}

std::size_t common_size(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

/// "message 1 of 3": as in the messages about records.
std::string place_of(std::size_t i, std::size_t n) { return str("message ", i + 1, " of ", n); }

class AnswerFinder {
 public:
  AnswerFinder(const ChatTemplate& chat, std::span<const ChatMessage> messages, const ChatValues& values,
               const std::string& text, const std::vector<ChatRange>& contents)
      : chat_(chat), messages_(messages), values_(values), text_(text), contents_(contents) {}

  Result<std::vector<ChatAnswer>> find() {
    std::vector<ChatAnswer> out;
    for (std::size_t i = 0; i < messages_.size(); ++i) {
      if (messages_[i].role != "assistant") continue;
      STRATA_TRY_ASSIGN(ChatAnswer answer, answer_of(i));
      answer.is_learned = messages_[i].is_learned;
      out.push_back(answer);
    }
    return out;
  }

 private:
  /// The size of the text that the template writes for the first n messages, if the whole text begins with
  /// it.
  std::optional<std::size_t> size_of_beginning(std::size_t n, bool for_generation) const {
    if (n == 0) return std::nullopt;  // templates may look at messages[0]
    const auto before = detail::written(chat_, values_, n, for_generation);
    if (!before.has_value() || !std::string_view(text_).starts_with(before->bytes())) return std::nullopt;
    return before->size();
  }

  Result<ChatAnswer> answer_of(std::size_t i) {
    const ChatRange said = contents_[i];
    const bool has_said = said.begin < said.end;
    ChatAnswer answer;
    answer.has_calls = values_.has_calls[i];
    // The text that the template writes before and behind calls belongs to calls, not to every turn.
    const bool is_usual = has_said && !answer.has_calls;
    // The text before and behind the first answer is found by rendering; that of the others is usually the
    // same.
    if (is_usual && !prompt_.empty() && ends_at(prompt_, said.begin)) {
      answer.begin = said.begin;
    } else if (const auto begin = size_of_beginning(i, true); begin && (!has_said || *begin <= said.begin)) {
      answer.begin = *begin;
      if (prompt_.empty()) learn_prompt(i, *begin);
    } else if (has_said) {
      answer.begin = said.begin;
    } else {
      return Status::error(Code::unsupported,
                           str(place_of(i, messages_.size()),
                               ": the template does not show where the assistant's answer begins"));
    }
    answer.said_end = has_said ? said.end : answer.begin;
    const std::size_t next = next_content(i);
    if (answer.has_calls) {
      end_calls(i, next, answer);
    } else if (i + 1 == messages_.size()) {
      answer.end = text_.size();
    } else if (is_usual && !tail_.empty() && begins_at(tail_, answer.said_end)) {
      answer.end = answer.said_end + tail_.size();
    } else if (const auto end = size_of_beginning(i + 1, false);
               end && *end >= answer.said_end && *end <= next) {
      answer.end = *end;
      if (is_usual && tail_.empty()) tail_ = text_.substr(answer.said_end, *end - answer.said_end);
    } else {
      answer.end = next;
    }
    return answer;
  }

  /// A turn of calls ends where the text goes on otherwise than if the conversation ended with it. Only
  /// behind the calls are the two the same: Qwen3 puts an empty thought before the last answer.
  void end_calls(std::size_t i, std::size_t next, ChatAnswer& answer) {
    const std::string_view behind = std::string_view(text_).substr(answer.said_end, next - answer.said_end);
    const bool is_last = i + 1 == messages_.size();
    const std::size_t usual = usual_end().empty() ? std::string_view::npos
                              : is_last           ? behind.rfind(usual_end())
                                                  : behind.find(usual_end());
    const std::optional<std::string> last = is_last ? std::nullopt : text_behind_last(i);
    const std::size_t same = last ? common_size(behind, *last) : 0;
    answer.end = next;
    if (last && same == last->size())
      answer.end = answer.said_end + same;
    else if (usual != std::string_view::npos)
      answer.end = answer.said_end + usual + usual_end().size();
    else if (same > 0)
      answer.end = answer.said_end + same;
    else if (!is_last)
      answer.has_calls = false;  // nothing shows which tokens close the calls: the first one ends the turn
  }

  /// The text that the template writes behind message i if it is the last one.
  std::optional<std::string> text_behind_last(std::size_t i) const {
    const auto text = detail::written(chat_, values_, i + 1, false);
    if (!text.has_value()) return std::nullopt;
    const ChatRange said = said_of(contents_of(*text, values_.authors.count()), values_.authors)[i];
    return said.begin < said.end ? std::optional(text->bytes().substr(said.end)) : std::nullopt;
  }

  /// The text that the template writes behind any answer, whether it is the last one or not; empty if it
  /// shows none.
  const std::string& usual_end() {
    if (usual_end_) return *usual_end_;
    usual_end_.emplace();
    const std::vector<ChatMessage> probe = {{"user", "q"}, {"assistant", "a"}, {"user", "r"}};
    const auto values = ChatValues::of(probe, {});
    const auto whole = detail::written(chat_, *values, 3, false),
               part = detail::written(chat_, *values, 2, false);
    if (!whole.has_value() || !part.has_value()) return *usual_end_;
    const auto behind = [&](const Text& text) {
      const ChatRange answer = contents_of(text, values->authors.count())[1];
      return std::string_view(text.bytes()).substr(answer.begin < answer.end ? answer.end : text.size());
    };
    usual_end_->assign(behind(*whole).substr(0, common_size(behind(*whole), behind(*part))));
    return *usual_end_;
  }

  bool ends_at(const std::string& text, std::size_t at) const {
    return at >= text.size() && text_.compare(at - text.size(), text.size(), text) == 0;
  }

  bool begins_at(const std::string& text, std::size_t at) const {
    return text_.compare(at, text.size(), text) == 0;
  }

  void learn_prompt(std::size_t i, std::size_t begin) {
    const auto without = size_of_beginning(i, false);
    if (without && *without < begin) prompt_ = text_.substr(*without, begin - *without);
  }

  std::size_t next_content(std::size_t i) const {
    for (std::size_t k = i + 1; k < messages_.size(); ++k)
      if (contents_[k].begin < contents_[k].end && contents_[k].begin >= contents_[i].end)
        return contents_[k].begin;
    return text_.size();
  }

  const ChatTemplate& chat_;
  const std::span<const ChatMessage> messages_;
  const ChatValues& values_;
  const std::string& text_;
  const std::vector<ChatRange>& contents_;
  std::string prompt_, tail_;  // the texts before and behind the first answer
  std::optional<std::string> usual_end_;
};

Status left_out(const std::string& what) {
  return Status::error(Code::unsupported, str(what, ", which the chat template leaves out"));
}

/// A message that the template leaves out would be lost without a word. An earlier answer may be: templates
/// drop reasoning, also where it is all that an answer has.
Status check_all_written(std::span<const ChatMessage> messages, const ChatValues& values,
                         const std::vector<ChatRange>& written, bool for_generation) {
  const detail::ChatAuthors& authors = values.authors;
  const auto is_written = [&](detail::jinja::Author author) {
    const ChatRange& range = written[static_cast<std::size_t>(author)];
    return range.begin < range.end;
  };
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const bool may_be_dropped = for_generation && messages[i].role == "assistant";
    if (!is_written(authors.content(i)) && !may_be_dropped &&
        !stripped(Text(messages[i].content), true, true).empty())
      return left_out(str(place_of(i, messages.size()), " has the role '", messages[i].role, "'"));
    if (values.has_calls[i] && !is_written(authors.more(i)))
      return left_out(str(place_of(i, messages.size()), " has tool calls"));
  }
  const bool has_tools = !values.tools.is_none();
  return has_tools && !is_written(authors.tools()) ? left_out("the conversation has tools") : Status::ok();
}

/// Refuses reasoning if the template knows none. One that does may leave out that of earlier answers.
Status check_reasoning(const ChatTemplate& chat, const ChatValues& values,
                       const std::vector<ChatRange>& written) {
  const auto is_written = [&](const std::vector<ChatRange>& by_author, std::size_t i) {
    const ChatRange& range = by_author[static_cast<std::size_t>(values.authors.reasoning(i))];
    return range.begin < range.end;
  };
  const std::vector<bool>& has = values.has_reasoning;
  const auto first = static_cast<std::size_t>(std::find(has.begin(), has.end(), true) - has.begin());
  for (std::size_t i = first; i < has.size(); ++i)
    if (has[i] && is_written(written, i)) return {};
  if (first == has.size()) return {};
  const auto alone = detail::written(chat, values, first + 1, false);
  if (alone.has_value() && is_written(contents_of(*alone, values.authors.count()), first)) return {};
  return left_out(str(place_of(first, has.size()), " has reasoning ('reasoning_content')"));
}

}  // namespace

Result<ChatText> apply_chat_template(const ChatTemplate& chat, std::span<const ChatMessage> messages,
                                     bool for_generation, const std::string& tools) {
  if (messages.empty())
    return Status::error(Code::invalid, "a conversation has 0 messages; it needs at least 1");
  for (std::size_t i = 0; i < messages.size(); ++i)
    if (const std::string& role = messages[i].role; !is_chat_role(role))
      return Status::error(Code::unsupported, str(place_of(i, messages.size()), " has the role '",
                                                  role.substr(0, 80), "'; the known roles are ", kChatRoles));
  STRATA_TRY_ASSIGN(const ChatValues values, ChatValues::of(messages, tools));
  auto text = detail::written(chat, values, messages.size(), for_generation);
  if (!text.has_value()) return text.status().annotate(str("chat template ", chat.name()));
  const std::vector<ChatRange> by_author = contents_of(*text, values.authors.count());
  STRATA_TRY(check_all_written(messages, values, by_author, for_generation));
  STRATA_TRY(check_reasoning(chat, values, by_author));
  ChatText out;
  if (!for_generation) {
    const std::vector<ChatRange> said = said_of(by_author, values.authors);
    STRATA_TRY_ASSIGN(out.answers, AnswerFinder(chat, messages, values, text->bytes(), said).find());
  }
  std::size_t begin = 0;
  for (const Text::Stretch& stretch : text->stretches()) {
    if (stretch.author == kTemplate) out.of_template.push_back({begin, stretch.end});
    begin = stretch.end;
  }
  out.text = text->bytes();
  out.markers = chat.parsed().markers;
  return out;
}

}  // namespace strata
