#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <strata/text/chat.h>
#include <strata/text/documents.h>
#include <strata/text/tokenizer.h>
#include <strata/runtime/io/io.h>
#include <strata/runtime/status.h>

#include "data/token_cache_format.h"

namespace strata::detail {

/// Writes a cache block by block to a temporary file, which is then renamed. Holds 8 bytes per document and,
/// once a token is masked, a bit per token. For one use.
class TokenCacheWriter {
 public:
  TokenCacheWriter(Io& io, const Tokenizer& tokenizer, const Result<ChatTemplate>& chat,
                   const std::string& path, RecordUse use = RecordUse::texts);
  Status write(const std::vector<std::string>& sources);
  /// One sentence per file of records that was read.
  std::vector<std::string> notes() && { return std::move(notes_); }

 private:
  Status write_all_sources(const std::vector<std::string>& sources);
  Status finish(const std::vector<std::string>& sources);
  Result<FileDigest> encode_source(const std::string& path);
  std::size_t safe_cut(std::string_view text, std::size_t searched) const;
  Result<FileDigest> encode_text(const std::string& path);
  Result<FileDigest> encode_records(const std::string& path);
  Status add_document(const Document& document);
  void begin_document();
  /// The tokens that the tokenizer begins a text with.
  Status append_prefix(bool loss_mask);
  Status append(std::span<const std::int32_t> ids, bool loss_mask);
  Status end_document(bool loss_mask);
  void mark(std::uint64_t n, bool loss_mask);
  Status write_next(std::span<const std::byte> bytes);

  Io& io_;
  const Tokenizer& tokenizer_;
  const Result<ChatTemplate>& chat_;
  const RecordUse use_;
  std::string path_;
  std::string temporary_;
  std::unique_ptr<File> file_;
  CacheHeader header_;
  Digester payload_;
  std::uint64_t written_ = 0;             // bytes after the header
  std::vector<std::byte> packed_;         // tokens not yet written to the file
  std::vector<std::uint64_t> loss_mask_;  // bits; empty until the first masked token
  std::vector<std::uint64_t> documents_;
  std::vector<std::string> notes_;
  bool write_failed_ = false;
  bool bad_sources_ = false;  // the error is about the sources (one line each), not about the cache file
};

}  // namespace strata::detail
