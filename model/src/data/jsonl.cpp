#include <algorithm>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include <strata/model/documents.h>
#include <strata/runtime/str.h>

#include "text/lines.h"
#include "text/strict_json.h"

namespace strata {
namespace {

using nlohmann::json;

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::size_t kShown = 80;           // bytes of a user's text in a message
constexpr std::size_t kMaxIgnoredKeys = 64;  // unused keys that are counted separately
constexpr std::string_view kKinds = "'text', 'prompt' and 'completion', or 'messages'";
constexpr std::string_view kPairKeys = "'prompt', 'chosen' and 'rejected'";

/// What is wrong with a line. Problems of one kind are counted together.
struct Problem {
  std::string kind;
  std::string message;
};
using Outcome = std::optional<Problem>;

/// A user's text for a message: shortened and without control characters.
std::string shown(std::string_view text) {
  std::string out(text.substr(0, kShown));
  for (char& c : out)
    if (c < ' ' || c > '~') c = '?';
  return text.size() > kShown ? out + "..." : out;
}

std::string keys_of(const json& record) {
  std::string names;
  for (const auto& [key, value] : record.items()) names += str(names.empty() ? "" : ", ", key);
  return names.empty() ? "it has no key" : str("its keys: ", shown(names));
}

/// The parser's message without its prefix "parse error at line 1, column 5: ...", whose numbers are relative
/// to the line.
std::string reason(std::string_view message) {
  const std::size_t column = message.find("column ");
  if (column != std::string_view::npos) message.remove_prefix(column);
  std::string text = "not JSON: ";
  // The parser appends what it last read, which can be as long as the line.
  return text + shown(message.substr(0, message.find("; ")));
}

bool is_blank(const detail::Line& line) {
  return !line.too_long && line.text.find_first_not_of(" \t\r") == std::string::npos;
}

class RecordReader {
 public:
  RecordReader(const Result<ChatTemplate>& chat, RecordUse use, JsonlStats& stats)
      : chat_(chat), use_(use), stats_(stats) {}

  /// The documents of a line.
  Outcome read(const detail::Line& line, std::vector<Document>& into) {
    if (line.too_long) return Problem{"length", str("longer than ", kMaxRecordBytes, " bytes")};
    const std::string& text = line.text;
    if (text.starts_with(kByteOrderMark)) return Problem{"json", "not JSON: a byte order mark"};
    const Result<json> parsed = detail::parse_strict_json(text);
    if (!parsed.has_value()) {
      const std::string_view why = parsed.status().message();
      if (why.starts_with("not JSON: ")) return Problem{"json", reason(why)};
      return Problem{std::string(why.substr(0, 5)), shown(why)};  // a NUL, nesting, a duplicate key
    }
    if (!parsed->is_object()) return Problem{"object", str("a record must be an object, not ", a(*parsed))};
    if (!kind_known_)
      if (Outcome problem = find_kind(*parsed)) return problem;
    return build(*parsed, into);
  }
  bool kind_known() const noexcept { return kind_known_; }

 private:
  static std::string a(const json& value) {
    const std::string_view name = value.type_name();
    return str(name == "object" || name == "array" ? "an " : name == "null" ? "" : "a ", name);
  }

  Outcome find_kind(const json& record) {
    const bool pair = record.contains("chosen") && record.contains("rejected");
    if (use_ == RecordUse::pairs) {
      if (!pair)
        return Problem{"kind", str("the first record must be a pair: ", kPairKeys, "; ", keys_of(record))};
      stats_.kind = SourceKind::pairs;
      kind_known_ = true;
      return {};
    }
    if (pair)
      return Problem{"kind", str("its records are pairs, with 'chosen' and 'rejected': train with --task "
                                 "reward or --task dpo")};
    const bool text = record.contains("text"), messages = record.contains("messages");
    const bool completion = record.contains("prompt") && record.contains("completion");
    if (text + messages + completion > 1)
      return Problem{"kind", str("the first record must be of one kind: ", kKinds, "; ", keys_of(record))};
    if (text + messages + completion == 0)
      return Problem{"kind", str("the first record must have ", kKinds, "; ", keys_of(record),
                                 record.contains("conversations")
                                     ? "; write 'conversations' as messages with 'role' and 'content'"
                                     : "")};
    if (messages && !chat_.has_value()) return Problem{"kind", std::string(chat_.status().message())};
    stats_.kind = text ? SourceKind::jsonl_text : messages ? SourceKind::messages : SourceKind::completions;
    kind_known_ = true;
    return {};
  }

  Outcome build(const json& record, std::vector<Document>& into) {
    into.assign(stats_.kind == SourceKind::pairs ? 2 : 1, {});
    Outcome problem;
    switch (stats_.kind) {
      case SourceKind::completions:
        problem = build_completion(record, "completion", into.front());
        break;
      case SourceKind::messages:
        problem = build_conversation(record, into.front());
        break;
      case SourceKind::pairs:
        problem = build_answer(record, "chosen", into[0]);
        if (!problem) problem = build_answer(record, "rejected", into[1]);
        break;
      default:
        problem = build_text(record, into.front());
    }
    if (!problem) count_ignored_keys(record);
    return problem;
  }

  /// Sets `found` to the string at `key`, or returns the problem.
  static Outcome string_at(const json& object, const char* key, bool may_be_empty,
                           const std::string*& found) {
    const auto it = object.find(key);
    if (it == object.end()) return Problem{str("no ", key), str("no '", key, "'; ", keys_of(object))};
    if (!it->is_string()) return Problem{key, str("'", key, "' must be a string, not ", a(*it))};
    found = it->get_ptr<const std::string*>();
    if (found->empty() && !may_be_empty) return Problem{str("empty ", key), str("'", key, "' is empty")};
    return {};
  }

  static Outcome build_text(const json& record, Document& into) {
    const std::string* text = nullptr;
    if (Outcome problem = string_at(record, "text", false, text)) return problem;
    into.segments.push_back({*text});
    return {};
  }

  static Outcome build_completion(const json& record, const char* key, Document& into) {
    const std::string *prompt = nullptr, *completion = nullptr;
    if (Outcome problem = string_at(record, "prompt", true, prompt)) return problem;
    if (Outcome problem = string_at(record, key, false, completion)) return problem;
    if (!prompt->empty()) into.segments.push_back({*prompt, false});
    into.segments.push_back({*completion});
    return {};
  }

  /// Appends the messages of the array at `key`.
  Outcome messages_at(const json& record, const char* key, std::vector<ChatMessage>& said) const {
    const auto messages = record.find(key);
    if (messages == record.end()) return Problem{str("no ", key), str("no '", key, "'; ", keys_of(record))};
    if (!messages->is_array()) return Problem{key, str("'", key, "' must be an array, not ", a(*messages))};
    if (messages->empty()) return Problem{str("empty ", key), str("'", key, "' is empty")};
    std::size_t n = 0;
    for (const json& message : *messages) {
      ++n;
      if (Outcome problem = add_message(message, said)) {
        problem->message = str("message ", n, " of ", messages->size(), ": ", problem->message);
        return problem;
      }
    }
    return {};
  }

  /// One side of a pair.
  Outcome build_answer(const json& record, const char* key, Document& into) {
    const auto answer = record.find(key);
    if (answer == record.end() || !answer->is_array()) return build_completion(record, key, into);
    if (!chat_.has_value()) return Problem{"kind", std::string(chat_.status().message())};
    std::vector<ChatMessage> said;
    if (record.contains("prompt"))
      if (Outcome problem = messages_at(record, "prompt", said)) return problem;
    if (Outcome problem = messages_at(record, key, said)) return problem;
    return write_chat(said, into);
  }

  Outcome build_conversation(const json& record, Document& into) {
    std::vector<ChatMessage> said;
    if (Outcome problem = messages_at(record, "messages", said)) return problem;
    return write_chat(said, into);
  }

  Outcome write_chat(const std::vector<ChatMessage>& said, Document& into) {
    const auto is_answer = [](const ChatMessage& message) { return message.role == "assistant"; };
    if (std::none_of(said.begin(), said.end(), is_answer))
      return Problem{"learnt", "no message is in the loss: none has the role 'assistant'"};
    Result<ChatText> chat = apply_chat_template(*chat_, said);
    if (!chat.has_value()) return Problem{"chat", std::string(chat.status().message())};
    into.chat = *std::move(chat);
    stats_.has_chats = true;
    into.end_loss_mask = is_answer(said.back());
    return {};
  }

  Outcome add_message(const json& message, std::vector<ChatMessage>& said) const {
    if (!message.is_object()) return Problem{"message", str("expected an object, not ", a(message))};
    const std::string *role = nullptr, *content = nullptr;
    if (Outcome problem = string_at(message, "role", false, role)) return problem;
    if (!is_chat_role(*role))
      return Problem{"unknown role",
                     str("'role' is '", shown(*role), "'; the ", chat_->name(), " format has ", kChatRoles)};
    if (Outcome problem = string_at(message, "content", *role != "assistant", content)) return problem;
    // Other keys, such as a tool call or a weight, would change what is trained on, so they are not ignored.
    for (const auto& [key, value] : message.items())
      if (key != "role" && key != "content")
        return Problem{
            "part", str("'", shown(key), "' of a message is not supported; only 'role' and 'content' are")};
    said.push_back({*role, *content});
    return {};
  }

  void count_ignored_keys(const json& record) {
    for (const auto& [key, value] : record.items()) {
      const bool read = stats_.kind == SourceKind::completions ? key == "prompt" || key == "completion"
                        : stats_.kind == SourceKind::messages  ? key == "messages"
                        : stats_.kind == SourceKind::pairs
                            ? key == "prompt" || key == "chosen" || key == "rejected"
                            : key == "text";
      if (!read && (stats_.ignored_keys.size() < kMaxIgnoredKeys || stats_.ignored_keys.contains(shown(key))))
        ++stats_.ignored_keys[shown(key)];
    }
  }

  const Result<ChatTemplate>& chat_;
  const RecordUse use_;
  JsonlStats& stats_;
  bool kind_known_ = false;
};

/// The problems of a file; the message has one line per kind.
class ProblemsByKind {
 public:
  /// Adds `n` problems of one kind, of which the first is in `line`.
  void add(std::uint64_t line, Problem problem, std::uint64_t n = 1) {
    const auto same = std::find_if(found_.begin(), found_.end(),
                                   [&](const Found& f) { return f.first.kind == problem.kind; });
    if (same != found_.end())
      same->others += n;
    else
      found_.push_back({line, std::move(problem), n - 1});
  }
  bool none() const noexcept { return found_.empty(); }
  Status status(const std::string& path) const {
    std::string text;
    for (const Found& f : found_)
      text += str(text.empty() ? "" : "\n", path, ": line ", f.line, ": ", f.first.message,
                  f.others > 0 ? str(" (and ", f.others, " more)") : "");
    return Status::error(Code::invalid, text);
  }

 private:
  struct Found {
    std::uint64_t line;
    Problem first;
    std::uint64_t others;
  };
  std::vector<Found> found_;
};

}  // namespace

Result<JsonlStats> read_jsonl(Io& io, const std::string& path, const Result<ChatTemplate>& chat,
                              const std::function<Status(const Document&)>& take, RecordUse use) try {
  JsonlStats stats;
  RecordReader reader(chat, use, stats);
  ProblemsByKind problems;
  bool hopeless = false;  // the kind is unknown, so every further line would fail for the same reason
  std::vector<Document> documents;
  std::uint64_t first_blank = 0, blanks = 0;  // since the last record; ignored at the end of a file
  const auto one = [&](const detail::Line& line) -> Status {
    if (hopeless) return {};
    if (is_blank(line)) {
      first_blank = blanks++ == 0 ? line.number : first_blank;
      return {};
    }
    if (blanks > 0) problems.add(first_blank, {"blank", "a blank line"}, std::exchange(blanks, 0));
    if (Outcome problem = reader.read(line, documents)) {
      hopeless = problem->kind == "kind";
      problems.add(line.number, *std::move(problem));
      return {};
    }
    ++stats.n_records;
    for (const Document& document : documents)
      if (problems.none()) STRATA_TRY(take(document));
    return {};
  };
  STRATA_TRY_ASSIGN(stats.file, detail::for_each_line(io, path, kMaxRecordBytes, one));
  if (!problems.none()) return problems.status(path);
  if (stats.n_records == 0) return Status::error(Code::invalid, str(path, ": it has no records"));
  return stats;
} catch (const std::bad_alloc&) {
  return Status::error(Code::out_of_memory, str(path, ": not enough memory for one of its lines"));
}

}  // namespace strata
