#include "data/token_cache_writer.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include <unistd.h>

#include <strata/text/text_check.h>
#include <strata/runtime/error_list.h>
#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

#include "data/records/byte_source.h"
#include "tokenizer/pretokenizer.h"

namespace strata::detail {
namespace {

constexpr std::size_t kBlockBytes = 4 * kMiB;
constexpr std::size_t kFlushBytes = 256 * kKiB;  // records are short, so they are written in larger blocks
// A stretch that is tokenized as a whole takes nine times its size. No text that people read has such a
// stretch.
constexpr std::size_t kMaxUncutBytes = 4 * kMaxPretokenBytes;
constexpr std::int32_t kSmallVocab = 65536;

// Several processes may build a cache, and several threads of one.
std::string temporary_beside(const std::string& path) {
  static std::atomic<int> n_files{0};
  return str(path, ".tmp-", ::getpid(), "-", n_files.fetch_add(1, std::memory_order_relaxed));
}

// A missing folder of a file to write is not a missing input.
Result<std::unique_ptr<File>> create_file(Io& io, const std::string& path) {
  auto file = io.open(path, OpenMode::truncate);
  if (!file.has_value() && file.status().code() == Code::not_found)
    return Status::error(Code::io_error, std::string(file.status().message()));
  return file;
}

Status uncut(const std::string& path, std::uint64_t begin, std::size_t bytes) {
  return Status::error(
      Code::invalid,
      str(path, ": there is no white space in ", bytes, " bytes from byte ", begin, " on; at most ",
          kMaxUncutBytes, " can be tokenized at once: break its lines, or write records of .jsonl"));
}

}  // namespace

TokenCacheWriter::TokenCacheWriter(Io& io, const Tokenizer& tokenizer, const Result<ChatTemplate>& chat,
                                   const std::string& path, RecordUse use)
    : io_(io),
      tokenizer_(tokenizer),
      chat_(chat),
      use_(use),
      path_(path),
      temporary_(temporary_beside(path)) {}

Status TokenCacheWriter::write(const std::vector<std::string>& sources) {
  Status status = write_all_sources(sources);
  // An incomplete temporary file is useless; report the first error, not one of removing it.
  if (!status && io_.exists(temporary_)) (void)io_.remove_all(temporary_).is_ok();
  return bad_sources_ ? status : std::move(status).annotate(str("building ", path_));
}

Status TokenCacheWriter::write_all_sources(const std::vector<std::string>& sources) {
  STRATA_TRY_ASSIGN(file_, create_file(io_, temporary_));
  header_.bytes_per_token = tokenizer_.vocab_size() <= kSmallVocab ? 2 : 4;
  SourceDigester digester;
  ErrorList bad;
  for (const std::string& source : sources) {
    const Result<FileDigest> digest = encode_source(source);
    if (write_failed_ || digest.status().code() == Code::out_of_memory) return digest.status();
    bad.add(digest.status());
    if (!digest.has_value()) continue;
    STRATA_TRY_ASSIGN(const std::string form, source_form(io_, source));
    digester.add(*digest, form);
  }
  bad_sources_ = !bad.empty();
  STRATA_TRY(bad.status());
  header_.sources = digester.digest();
  return finish(sources);
}

Status TokenCacheWriter::finish(const std::vector<std::string>& sources) {
  if (header_.source_bytes == 0)
    return Status::error(Code::invalid, str("the corpus is empty: ", plural(sources.size(), "empty file"),
                                            "; the first is ", sources.front()));
  // An empty text has no tokens if the tokenizer has no end-of-text token; then it is no document.
  std::erase(documents_, header_.n_tokens);
  documents_.erase(std::unique(documents_.begin(), documents_.end()), documents_.end());
  header_.vocab_size = static_cast<std::uint32_t>(tokenizer_.vocab_size());
  header_.n_sources = static_cast<std::uint32_t>(sources.size());
  header_.tokenizer = tokenizer_.document_digest();
  header_.n_documents = documents_.size();
  packed_.resize(packed_.size() +
                 (8 - (written_ + packed_.size()) % 8) % 8);  // zero padding: the rest are 8-byte words
  STRATA_TRY(write_next(packed_));
  if (header_.n_loss_tokens < header_.n_tokens) STRATA_TRY(write_next(std::as_bytes(std::span(loss_mask_))));
  STRATA_TRY(write_next(std::as_bytes(std::span(documents_))));
  header_.payload = payload_.digest();
  header_.header = header_.digest_of_rest();
  STRATA_TRY(write_all(*file_, 0, std::as_bytes(std::span(&header_, 1))));
  STRATA_TRY(file_->sync());
  STRATA_TRY(io_.rename(temporary_, path_));
  const std::size_t slash = path_.rfind('/');
  return io_.sync_dir(slash == std::string::npos ? "." : slash == 0 ? "/" : path_.substr(0, slash));
}

Result<FileDigest> TokenCacheWriter::encode_source(const std::string& path) {
  STRATA_TRY(check_source_name(path));
  if (use_ == RecordUse::pairs && !has_records(path))
    return Status::error(Code::invalid, str(path,
                                            ": pairs are in .jsonl or .json files, as records with 'prompt', "
                                            "'chosen' and 'rejected'"));
  return has_records(path) ? encode_records(path) : encode_text(path);
}

/// The last safe cut of a text whose first `searched` bytes were found to have none.
std::size_t TokenCacheWriter::safe_cut(std::string_view text, std::size_t searched) const {
  constexpr std::size_t kSeen = 8;  // bytes that decide about a cut: a character on either side
  const std::size_t from = searched - std::min(searched, kSeen);
  const std::size_t cut = tokenizer_.last_safe_cut(text.substr(from));
  return cut > 0 ? from + cut : 0;
}

Result<FileDigest> TokenCacheWriter::encode_text(const std::string& path) {
  STRATA_TRY_ASSIGN(const std::unique_ptr<ByteSource> source, ByteSource::open(io_, path));
  begin_document();
  STRATA_TRY(append_prefix(true));
  TextCheck check(path);
  std::string text;           // read, but not yet encoded
  std::size_t searched = 0;   // bytes of it that have no safe cut
  std::uint64_t text_at = 0;  // its first byte in the (uncompressed) file
  TextPosition place = TextPosition::begin;
  for (bool is_first = true, at_end = false; !at_end; is_first = false) {
    STRATA_TRY_ASSIGN(const std::string_view block, source->next());
    at_end = block.empty();
    STRATA_TRY(check.add(block));
    const std::string_view more = is_first ? without_byte_order_mark(block) : block;
    if (is_first) text_at = block.size() - more.size();
    text += more;
    header_.source_bytes += block.size();
    if (text.size() < kBlockBytes && !at_end) continue;
    const std::size_t cut = at_end ? text.size() : safe_cut(text, searched);
    searched = text.size() - cut;
    if (cut == 0 && text.size() > kMaxUncutBytes && tokenizer_.has_safe_cuts())
      return uncut(path, text_at, text.size());
    STRATA_TRY(append(tokenizer_.encode(std::string_view(text).substr(0, cut), SpecialTokens::as_text,
                                        AddSpecialTokens::no, place),
                      true));
    if (cut > 0) place = TextPosition::inside;
    text.erase(0, cut);
    text_at += cut;
  }
  STRATA_TRY(check.finish());
  if (std::string note = check.note(); !note.empty()) notes_.push_back(std::move(note));
  STRATA_TRY(end_document(true));
  return source->file();
}

Result<FileDigest> TokenCacheWriter::encode_records(const std::string& path) {
  // encode_document() returns `not_found` if the tokenizer lacks a marker of the chat template.
  const auto take = [&](const Document& document) {
    Status status = add_document(document);
    if (status.code() != Code::not_found) return status;
    return Status::error(Code::invalid, str(path, ": conversations are written as ", chat_->name(), ", but ",
                                            status.message()));
  };
  STRATA_TRY_ASSIGN(const RecordStats stats, read_records(io_, path, chat_, take, use_));
  if (stats.asked_chat) header_.chat = chat_mark(chat_);
  header_.source_bytes += stats.bytes;
  notes_.push_back(str(path, ": ", stats.described(chat_)));
  return stats.file;
}

Status TokenCacheWriter::add_document(const Document& document) {
  begin_document();
  STRATA_TRY_ASSIGN(const DocumentTokens tokens, encode_document(tokenizer_, document));
  const std::span ids(tokens.ids);
  for (std::size_t begin = 0, end = 0; begin < ids.size(); begin = end) {
    while (end < ids.size() && tokens.loss_mask[end] == tokens.loss_mask[begin]) ++end;
    STRATA_TRY(append(ids.subspan(begin, end - begin), tokens.loss_mask[begin]));
  }
  return {};
}

Status TokenCacheWriter::append_prefix(bool loss_mask) {
  if (!tokenizer_.markers().encloses) return {};
  return append(tokenizer_.spec().prefix, loss_mask);
}

void TokenCacheWriter::begin_document() { documents_.push_back(header_.n_tokens); }

Status TokenCacheWriter::end_document(bool loss_mask) {
  const std::int32_t end = tokenizer_.markers().end;
  return end < 0 ? Status::ok() : append(std::span(&end, 1), loss_mask);
}

Status TokenCacheWriter::append(std::span<const std::int32_t> ids, bool loss_mask) {
  const std::size_t width = header_.bytes_per_token, old = packed_.size();
  packed_.resize(old + ids.size() * width);
  for (std::size_t i = 0; i < ids.size(); ++i)
    std::memcpy(&packed_[old + i * width], &ids[i], width);  // the low bytes
  mark(ids.size(), loss_mask);
  if (packed_.size() < kFlushBytes) return {};
  STRATA_TRY(write_next(packed_));
  packed_.clear();
  return {};
}

void TokenCacheWriter::mark(std::uint64_t n, bool loss_mask) {
  const std::uint64_t begin = header_.n_tokens;
  header_.n_tokens += n;
  if (loss_mask) header_.n_loss_tokens += n;
  if (header_.n_loss_tokens == header_.n_tokens) return;  // nothing masked yet, so no bits are stored
  if (loss_mask_.empty() && begin > 0) {                  // all earlier tokens were in the loss
    loss_mask_.assign((begin + 63) / 64, ~std::uint64_t{0});
    if (begin % 64 != 0) loss_mask_.back() = (std::uint64_t{1} << begin % 64) - 1;
  }
  loss_mask_.resize((header_.n_tokens + 63) / 64);
  if (!loss_mask) return;
  for (std::uint64_t i = begin; i < header_.n_tokens; ++i) loss_mask_[i / 64] |= std::uint64_t{1} << i % 64;
}

Status TokenCacheWriter::write_next(std::span<const std::byte> bytes) {
  Status status = write_all(*file_, sizeof(CacheHeader) + written_, bytes);
  write_failed_ = !status.is_ok();
  if (write_failed_) return status;
  payload_.update(bytes);
  written_ += bytes.size();
  return {};
}

}  // namespace strata::detail
