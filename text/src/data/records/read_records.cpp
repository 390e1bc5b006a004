#include <algorithm>
#include <iterator>
#include <new>
#include <utility>
#include <vector>

#include <strata/text/documents.h>
#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>

#include "data/records/byte_source.h"
#include "data/records/record_forms.h"
#include "data/records/record_reader.h"
#include "text/large_integer.h"
#include <strata/runtime/config/strict_json.h>

namespace strata {
namespace {

using detail::Outcome;
using detail::Problem;
using detail::RecordForm;
using detail::RecordJson;
using detail::RecordParts;

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::size_t kMaxCountedKeys = 64;  // keys that are counted separately

/// The parser's message without its prefix "parse error at line 1, column 5: ...", whose numbers are relative
/// to the record; the line stays where the record has several.
std::string reason(std::string_view message) {
  const std::size_t line = message.find("line "), column = message.find("column ");
  if (column != std::string_view::npos)
    message.remove_prefix(line != std::string_view::npos && line < column &&
                                  !message.substr(line).starts_with("line 1,")
                              ? line
                              : column);
  std::string text = "not JSON: ";
  // The parser appends what it last read, which can be as long as the record.
  return text + detail::shown_text(message.substr(0, message.find("; ")));
}

std::string with_article(std::string_view noun) { return str(noun.starts_with('A') ? "an " : "a ", noun); }

bool is_blank(const detail::Record& record) {
  return !record.in_array && !record.too_long && record.text.find_first_not_of(" \t\r") == std::string::npos;
}

class RecordsOfFile {
 public:
  RecordsOfFile(const std::string& path, const Result<ChatTemplate>& chat, RecordUse use, RecordStats& stats)
      : chat_(chat), use_(use), stats_(stats) {
    const std::string_view name = detail::without_gz(path);
    is_json_ = name.size() > 5 && (name.ends_with(".json") || name.ends_with(".JSON"));
  }

  /// The documents of a record.
  Outcome read(const detail::Record& record, std::vector<Document>& into) {
    if (record.too_long) return Problem{"length", str("longer than ", kMaxRecordBytes, " bytes")};
    const std::string& text = record.text;
    if (text.starts_with(kByteOrderMark)) return Problem{"json", "not JSON: a byte order mark"};
    const Result<RecordJson> parsed = detail::parse_strict_ordered_json(text);
    if (!parsed.has_value()) return no_json(record, parsed.status().message());
    if (!parsed->is_object())
      return Problem{"object", str("a record must be an object, not ", detail::kind_of(*parsed))};
    if (form_ == nullptr) {
      if (Outcome problem = detail::find_form(*parsed, use_, form_)) return problem;
      first_ = record.where();
      keys_ = keys_read(*form_);
      stats_.form = form_->name;
      stats_.are_pairs = form_->is_pair;
    }
    return build(text, *parsed, into);
  }

 private:
  Outcome no_json(const detail::Record& record, std::string_view why) const {
    if (!why.starts_with("not JSON: "))
      return Problem{std::string(why.substr(0, 5)),
                     detail::shown_text(why)};  // a NUL, nesting, a duplicate key
    if (record.in_array || form_ != nullptr || !is_json_) return Problem{"json", reason(why)};
    return Problem{std::string(detail::kOfFile),
                   str(reason(why), "; a .json file is an array of records, or has one record on each line")};
  }

  /// Records of answers with a mark whether each is good, as TRL ('label') and LLaMA-Factory ('kto_tag') have
  /// them: the bad ones would be learned like the good ones. A text with a number as its label is a class.
  Outcome refuse_unpaired(const RecordJson& record) const {
    for (const char* const key : {"label", "kto_tag"}) {
      const auto mark = record.find(key);
      if (form_->is_pair || mark == record.end()) continue;
      const bool is_number = form_->keys != "text" && mark->is_number() && (*mark == 0 || *mark == 1);
      if (!mark->is_boolean() && !is_number) continue;
      return Problem{std::string(detail::kOfFile),
                     str("its records are unpaired preferences ('", key, "' is ", mark->dump(),
                         "), which no task learns from; to train on the good ones, keep the records whose '",
                         key, "' is true, and remove that key")};
    }
    return {};
  }

  Outcome build(const std::string& text, const RecordJson& record, std::vector<Document>& into) {
    if (const auto large = detail::large_integer_in(text, keys_))
      return Problem{"large integer", why_refused(*large)};
    if (Outcome problem = refuse_unpaired(record)) return problem;
    if (const std::string missing = missing_key(record, *form_); !missing.empty())
      return other_form(record, missing);
    RecordParts parts;
    // Only a model that knows turns was made for conversations.
    const bool as_text = form_->may_be_text && chat_.has_value() && chat_->name() == "plain";
    stats_.asked_chat = stats_.asked_chat || form_->may_be_text;
    if (Outcome problem = form_->read(record, as_text, parts)) return problem;
    into.assign(std::max(parts.texts.size(), parts.chats.size()), {});
    for (std::size_t i = 0; i < parts.texts.size(); ++i) into[i].segments = std::move(parts.texts[i]);
    for (std::size_t i = 0; i < parts.chats.size(); ++i)
      if (Outcome problem = write_chat(parts.chats[i], parts.tools, into[i])) return problem;
    count_keys(record);
    return {};
  }

  void count_keys(const RecordJson& record) {
    for (const auto& [key, value] : record.items()) {
      if (std::find(keys_.begin(), keys_.end(), key) != keys_.end()) continue;
      const std::string name = detail::shown_text(key);
      if (stats_.ignored_keys.size() < kMaxCountedKeys || stats_.ignored_keys.contains(name))
        ++stats_.ignored_keys[name];
    }
    if (stats_.used_keys.size() == keys_.size()) return;
    const auto was_there = [&](const std::string& key) {
      const auto& used = stats_.used_keys;
      return record.contains(key) || std::find(used.begin(), used.end(), key) != used.end();
    };
    std::vector<std::string> used;
    std::copy_if(keys_.begin(), keys_.end(), std::back_inserter(used), was_there);
    stats_.used_keys = std::move(used);
  }

  /// A record without a key of the file's form.
  Outcome other_form(const RecordJson& record, const std::string& missing) const {
    std::string text = str("no '", missing, "'; ", detail::keys_of(record));
    const RecordForm* other = nullptr;
    if (!detail::find_form(record, RecordUse::any, other))
      text += str("; it is ", with_article(other->name), ", and ", first_, " is ", with_article(form_->name),
                  ": put them into files of their own");
    return Problem{str("no ", missing), std::move(text)};
  }

  Outcome write_chat(const std::vector<ChatMessage>& said, const std::string& tools, Document& into) {
    if (!chat_.has_value())
      return Problem{std::string(detail::kOfFile), std::string(chat_.status().message())};
    const auto is_answer = [](const ChatMessage& m) { return m.role == "assistant"; };
    const auto is_learned = [&](const ChatMessage& m) { return is_answer(m) && m.is_learned; };
    if (std::none_of(said.begin(), said.end(), is_learned))
      return Problem{"learnt", std::any_of(said.begin(), said.end(), is_answer)
                                   ? "no message is in the loss: none of the assistant's is to be learned"
                                   : "no message is in the loss: none has the role 'assistant'"};
    Result<ChatText> chat = apply_chat_template(*chat_, said, false, tools);
    if (!chat.has_value()) return Problem{"chat", std::string(chat.status().message())};
    into.chat = *std::move(chat);
    stats_.has_chats = stats_.asked_chat = true;
    into.end_loss_mask = is_learned(said.back());
    return {};
  }

  const Result<ChatTemplate>& chat_;
  const RecordUse use_;
  RecordStats& stats_;
  bool is_json_ = false;
  const RecordForm* form_ = nullptr;
  std::vector<std::string> keys_;  // that the form reads
  std::string first_;              // where the record is that decided it
};

}  // namespace

std::string RecordStats::described(const Result<ChatTemplate>& chat, bool counted) const {
  std::string keys;
  for (const std::string& key : used_keys) keys += str(keys.empty() ? "" : ", ", key);
  std::string what = counted ? plural_grouped(n_records, form) : plural(2, form).substr(2);
  std::string text = str(what, " (", keys, ")");
  if (has_chats && chat.has_value()) text += str(" read as chats (", chat->name(), ")");
  if (!has_chats && asked_chat) text += " read as Alpaca's prompts, since there is no chat template";
  std::string ignored;
  for (const auto& [key, n] : ignored_keys)
    ignored += counted ? str(ignored.empty() ? "" : ", ", "'", key, "' (", n, ")") : "";
  return ignored.empty() ? text : str(text, "; ignored: ", ignored);
}

Result<RecordStats> read_records(Io& io, const std::string& path, const Result<ChatTemplate>& chat,
                                 const std::function<Status(const Document&)>& take, RecordUse use) try {
  RecordStats stats;
  RecordsOfFile records(path, chat, use, stats);
  detail::ProblemsByKind problems;
  bool hopeless = false;  // every further record would fail for the same reason
  std::vector<Document> documents;
  std::uint64_t first_blank = 0, blanks = 0;  // since the last record; ignored at the end of a file
  const auto one = [&](const detail::Record& record) -> Status {
    if (hopeless) return {};
    if (is_blank(record)) {
      first_blank = blanks++ == 0 ? record.number : first_blank;
      return {};
    }
    if (blanks > 0)
      problems.add(str("line ", first_blank), {"blank", "a blank line"}, std::exchange(blanks, 0));
    if (Outcome problem = records.read(record, documents)) {
      hopeless = problem->kind == detail::kOfFile;
      problems.add(record.where(), *std::move(problem));
      return {};
    }
    ++stats.n_records;
    for (const Document& document : documents)
      if (problems.none()) STRATA_TRY(take(document));
    return {};
  };
  const auto read = detail::for_each_record(io, path, kMaxRecordBytes, one);
  if (!problems.none()) {
    const Status found = problems.status(path);
    return read.has_value() || read.status().code() != Code::invalid
               ? found
               : Status::error(Code::invalid, str(found.message(), "\n", read.status().message()));
  }
  if (!read.has_value()) return read.status();
  if (stats.n_records == 0) return Status::error(Code::invalid, str(path, ": it has no records"));
  stats.file = read->file;
  stats.bytes = read->bytes;
  return stats;
} catch (const std::bad_alloc&) {
  return Status::error(Code::out_of_memory, str(path, ": not enough memory for one of its records"));
}

Result<FirstRecord> read_first_record(Io& io, const std::string& path, const Result<ChatTemplate>& chat,
                                      RecordUse use) {
  FirstRecord first;
  RecordsOfFile records(path, chat, use, first.stats);
  const auto one = [&](const detail::Record& record) -> Status {
    if (is_blank(record)) return {};
    if (Outcome problem = records.read(record, first.documents))
      return Status::error(Code::invalid, str(path, ": ", record.where(), ": ", problem->message));
    first.stats.n_records = 1;
    return Status::error(Code::cancelled, "the first is enough");
  };
  const auto read = detail::for_each_record(io, path, kMaxRecordBytes, one);
  if (first.stats.n_records == 1) return first;
  if (!read.has_value()) return read.status();
  return Status::error(Code::invalid, str(path, ": it has no records"));
}

}  // namespace strata
