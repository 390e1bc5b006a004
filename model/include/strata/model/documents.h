#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <strata/model/chat.h>
#include <strata/model/tokenizer.h>
#include <strata/runtime/io/digest.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/status.h>

namespace strata {

/// The kind of a source file. The kind of a .jsonl file follows from the keys of its first record.
enum class SourceKind : std::uint8_t {
  text,         ///< the file is one document; the loss is on all of it
  jsonl_text,   ///< records with "text"; the loss is on all of it
  completions,  ///< records with "prompt" and "completion"; the loss is on the completion
  messages,     ///< records with "messages", each a "role" and a "content"; the loss is on the assistant's
  /// Records with "prompt", "chosen" and "rejected", each a string or messages (the prompt's may be part of
  /// the others'): two documents, the chosen one first. The loss is on the answers.
  pairs,
};
/// Which records a .jsonl file is to have.
enum class RecordUse : std::uint8_t {
  texts,  ///< to be learned: any kind but pairs
  pairs,  ///< to be compared
};
std::string_view to_string(SourceKind kind) noexcept;

/// Whether the file name has a JSONL extension: .jsonl or .ndjson.
bool is_jsonl(std::string_view path);
/// Errors: `unsupported` for an extension of a format that is neither text nor JSONL (.parquet, .gz, .json
/// ...), which would otherwise be trained on as noise.
Status check_source_name(std::string_view path);

/// A part of a document. It is tokenized by itself, so its border is a token border.
struct Segment {
  std::string text;
  bool loss_mask = true;
};
/// Either segments, or a conversation that is tokenized as a whole.
struct Document {
  std::vector<Segment> segments;
  ChatText chat;
  bool end_loss_mask = true;  ///< whether the end-of-text token is in the loss
  /// The whole text.
  std::string text() const;
};

/// Statistics of a .jsonl file.
struct JsonlStats {
  FileDigest file;
  SourceKind kind = SourceKind::jsonl_text;
  bool has_chats = false;  ///< some document is a conversation
  std::uint64_t n_records = 0;
  std::map<std::string, std::uint64_t> ignored_keys;  ///< number of records with each key that is not used
};

inline constexpr std::size_t kMaxRecordBytes = std::size_t{16} << 20;

/// Calls `take` with the documents of a .jsonl file in order, one per line, or two of a pair. A line that is
/// no record of the file's kind is an error, and so is a kind that is not of the `use`. All lines are read
/// before it is returned; for each kind of problem the message has one line with the first line number and
/// the count of the others. After the first problem `take` is not called any more. Lines are at most
/// kMaxRecordBytes long, UTF-8, nested at most 64 deep, and have no duplicate keys; blank lines at the end
/// are ignored. Unused keys of a record are ignored and counted. Conversations are written with `chat`; if
/// that is an error, it is returned for the first conversation. Errors: `invalid` with "PATH: line N: ...";
/// those of reading and of `take`.
Result<JsonlStats> read_jsonl(Io& io, const std::string& path, const Result<ChatTemplate>& chat,
                              const std::function<Status(const Document&)>& take,
                              RecordUse use = RecordUse::texts);

}  // namespace strata
