#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <strata/model/chat.h>
#include <strata/model/documents.h>
#include <strata/model/tokenizer.h>
#include <strata/runtime/io.h>
#include <strata/runtime/status.h>

#include "token_cache_format.h"

namespace strata::detail {

/// Writes a cache beside its place, block by block, and renames it there. Holds 8 bytes a document and, once
/// a token is not learnt, a bit a token. One use.
class TokenCacheWriter {
 public:
  TokenCacheWriter(Io& io, const Tokenizer& tokenizer, const Result<ChatTemplate>& chat,
                   const std::string& path);
  Status write(const std::vector<std::string>& sources);
  /// What was read, a sentence a .jsonl file.
  std::vector<std::string> notes() && { return std::move(notes_); }

 private:
  Status write_all_sources(const std::vector<std::string>& sources);
  Status finish(const std::vector<std::string>& sources);
  Result<FileDigest> encode_source(const std::string& path);
  Result<FileDigest> encode_text(const std::string& path);
  Result<FileDigest> encode_records(const std::string& path);
  Status encode_document(const Document& document);
  void begin_document();
  Status append_chat(const ChatText& chat);
  Status append(std::span<const std::int32_t> ids, bool loss_mask);
  Status end_document(bool loss_mask);
  void mark(std::uint64_t n, bool loss_mask);
  Status write_next(std::span<const std::byte> bytes);

  Io& io_;
  const Tokenizer& tokenizer_;
  const Result<ChatTemplate>& chat_;
  std::string path_;
  std::string temporary_;
  std::unique_ptr<File> file_;
  CacheHeader header_;
  Digester payload_;
  std::uint64_t written_ = 0;             // after the header
  std::vector<std::byte> packed_;         // tokens on their way to the file
  std::vector<std::uint64_t> loss_mask_;  // bits, from the first token that is not learnt on
  std::vector<std::uint64_t> documents_;
  std::vector<std::string> notes_;
  bool bad_sources_ = false;  // the problem is theirs, a line each, and not of what is built
};

}  // namespace strata::detail
