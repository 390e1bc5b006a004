#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <strata/text/chat.h>
#include <strata/text/data_split.h>
#include <strata/text/tokenizer.h>
#include <strata/runtime/io/digest.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/status.h>

namespace strata {

/// Which records a file is to have.
enum class RecordUse : std::uint8_t {
  texts,  ///< to be learned: any form but pairs
  pairs,  ///< to be compared
  any,    ///< either
};

/// Whether the file name is that of records: .jsonl, .ndjson or .json, also with .gz behind it.
bool has_records(std::string_view path);
/// Errors: `unsupported` for an extension of a format that is neither text nor JSON (.parquet, .csv, ...),
/// which would otherwise be trained on as noise.
Status check_source_name(std::string_view path);
/// The text of a file after its byte order mark, uncompressed if it is a .gz. Errors: of check_source_name()
/// and check_text(); `invalid` if it is longer than `limit_bytes`; `corrupt` for a broken .gz; those of
/// reading.
Result<std::string> read_source_text(Io& io, const std::string& path, std::uint64_t limit_bytes);
/// The same, of a longer text only so much; the last character may be cut.
Result<std::string> read_source_beginning(Io& io, const std::string& path, std::uint64_t limit_bytes);
/// The data files of a folder, sorted by name: its files of records, or its .txt files if it has none, of one
/// split. Tells `note` which others there are. Errors: `invalid` if there are no data files, and for a file
/// beside its own .gz; those of listing.
Result<std::vector<std::string>> data_files_of(Io& io, const std::string& folder, DataSplit split,
                                               const std::function<void(std::string)>& note);

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

/// A document as a run reads it, with what begins and ends it.
struct DocumentTokens {
  std::vector<std::int32_t> ids;
  std::vector<bool> loss_mask;  ///< per token: whether the loss counts it as a target
};
/// Errors: `not_found` if the tokenizer lacks a token of a built-in chat template.
Result<DocumentTokens> encode_document(const Tokenizer& tokenizer, const Document& document);

/// Figures about a file of records.
struct RecordStats {
  FileDigest file;          ///< as it is stored
  std::uint64_t bytes = 0;  ///< the size of its text, which a .gz file has compressed
  std::string form;         ///< "Alpaca record", ...: one of a table (model/README.md, "Records")
  bool are_pairs = false;   ///< each record is two documents
  bool has_chats = false;   ///< some document is a conversation
  bool asked_chat = false;  ///< the chat template decides how documents are written
  std::uint64_t n_records = 0;
  std::vector<std::string> used_keys;                 ///< that some record has, in the order of the form
  std::map<std::string, std::uint64_t> ignored_keys;  ///< number of records with each key that is not
  /// "52 Alpaca records (instruction, input, output) read as chats (chatml)"; without a number if `counted`
  /// is false.
  std::string described(const Result<ChatTemplate>& chat, bool counted = true) const;
};

inline constexpr std::size_t kMaxRecordBytes = std::size_t{16} << 20;

/// Calls `take` with the documents of a file of records in order, one per record, or two of a pair. A file
/// has one record per line, or is one JSON array of records; memory is bounded by one record. The form is
/// that of the first record, and every other must have it. A record that does not, or is malformed, is an
/// error, and so is a form that is not of the `use`. All records are read before it is returned; for each
/// kind of problem the message has one line with the first record and the count of the others. After the
/// first problem `take` is not called any more. A record has at most kMaxRecordBytes, is UTF-8, nested at
/// most 64 deep, and has no duplicate keys; blank lines at the end are ignored. Unused keys are counted.
/// Conversations are written with `chat`; if that is an error, it is returned for the first conversation.
/// Errors: `invalid` with "PATH: line N: ..." or "PATH: record N (byte M): ..."; `corrupt` for a broken .gz;
/// those of reading and of `take`, except `cancelled`, which ends the reading.
Result<RecordStats> read_records(Io& io, const std::string& path, const Result<ChatTemplate>& chat,
                                 const std::function<Status(const Document&)>& take,
                                 RecordUse use = RecordUse::texts);

/// The documents of the first record, and its form.
struct FirstRecord {
  RecordStats stats;  ///< covers that record alone
  std::vector<Document> documents;
};
Result<FirstRecord> read_first_record(Io& io, const std::string& path, const Result<ChatTemplate>& chat,
                                      RecordUse use = RecordUse::any);

}  // namespace strata
