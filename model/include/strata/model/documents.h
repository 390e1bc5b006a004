#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <strata/model/chat.h>
#include <strata/model/tokenizer.h>
#include <strata/runtime/digest.h>
#include <strata/runtime/io.h>
#include <strata/runtime/status.h>

namespace strata {

/// What one source file holds. That of a .jsonl file is found from the keys of its first record.
enum class SourceKind : std::uint8_t {
  text,         ///< the file is one document, all of it learnt
  jsonl_text,   ///< "text": all of it learnt
  completions,  ///< "prompt" and "completion": the completion is learnt
  messages,     ///< "messages", each a "role" and a "content": what the assistant says is learnt
};
std::string_view to_string(SourceKind kind) noexcept;

/// Whether the file's name says that it is JSONL: .jsonl or .ndjson.
bool is_jsonl(std::string_view path) noexcept;
/// Errors: `unsupported` for a name that says a format which is neither text nor JSONL (.parquet, .gz, .json
/// ...): taken for text it would be learnt as noise.
Status check_source_name(std::string_view path);

/// A stretch of a document. Its tokens are those of its text alone, so a border is one of tokens too.
struct Segment {
  std::string text;
  bool loss_mask = true;
};
/// Either stretches or a conversation, whose tokens are those of the whole.
struct Document {
  std::vector<Segment> segments;
  ChatText chat;
  bool end_loss_mask = true;  ///< that it ends here is learnt too
  /// All of its text.
  std::string text() const;
};

/// What was read of a .jsonl file.
struct JsonlStats {
  FileDigest file;
  SourceKind kind = SourceKind::jsonl_text;
  std::uint64_t n_records = 0;
  std::map<std::string, std::uint64_t> ignored_keys;  ///< keys beside those of its kind: in how many records
};

inline constexpr std::size_t kMaxRecordBytes = std::size_t{16} << 20;

/// Gives the documents of a .jsonl file in order, one a line. A line that is no record of the file's kind is
/// an error; all lines are read before it is returned, and of each kind of problem the first line and the
/// count of the others is told, a line a kind. After the first problem `take` is called no more. Lines are at
/// most kMaxRecordBytes long, UTF-8, nested at most 64 deep, and have no key twice; blank lines at
/// the end are let be. Other keys of a record
/// are let be and counted. Conversations are written as `chat` says; an error in its place is that of the
/// first one. Errors: `invalid` with "PATH: line N: ..."; those of reading and of `take`.
Result<JsonlStats> read_jsonl(Io& io, const std::string& path, const Result<ChatTemplate>& chat,
                              const std::function<Status(const Document&)>& take);

}  // namespace strata
