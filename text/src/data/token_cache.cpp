#include <strata/text/token_cache.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>
#include <utility>

#include <sys/mman.h>

#include <strata/text/documents.h>
#include <strata/text/text_check.h>
#include <strata/runtime/error_list.h>
#include <strata/runtime/str.h>

#include "data/records/byte_source.h"
#include "data/token_cache_format.h"
#include "data/token_cache_writer.h"

namespace strata {
namespace {

using detail::CacheHeader;
using detail::CacheLayout;

Status damaged(std::string message) { return Status::error(Code::corrupt, std::move(message)); }

Result<Digest> digest_sources(Io& io, const std::vector<std::string>& sources) {
  detail::SourceDigester digester;
  ErrorList unreadable;
  for (const std::string& path : sources) {
    const Result<FileDigest> file = digest_file(io, path);
    unreadable.add(file.status());
    const Result<std::string> form = detail::source_form(io, path);
    unreadable.add(file.has_value() ? form.status() : Status::ok());
    if (file.has_value() && form.has_value()) digester.add(*file, *form);
  }
  STRATA_TRY(unreadable.status());
  return digester.digest();
}

/// A sentence for each file of records, by its first one.
std::vector<std::string> forms_of(Io& io, const std::vector<std::string>& sources,
                                  const Result<ChatTemplate>& chat, RecordUse use) {
  std::vector<std::string> notes;
  for (const std::string& path : sources) {
    if (!has_records(path)) continue;
    // The cache holds what all records say, so a file that has changed since its digest was taken is no
    // error.
    const Result<FirstRecord> first = read_first_record(io, path, chat, use);
    if (first.has_value()) notes.push_back(str(path, ": ", first->stats.described(chat, false)));
  }
  return notes;
}

Status check_header(const CacheHeader& header, std::uint64_t file_bytes) {
  if (header.magic != detail::kCacheMagic) return damaged("not a token cache");
  if (header.version != detail::kCacheVersion)
    return Status::error(Code::unsupported, str("token cache version ", header.version,
                                                ", but this program reads version ", detail::kCacheVersion));
  if (header.header != header.digest_of_rest()) return damaged("its header is damaged");
  if (header.bytes_per_token != 2 && header.bytes_per_token != 4)
    return damaged(str(header.bytes_per_token, " bytes per token"));
  const std::uint64_t data_bytes = file_bytes - sizeof(CacheHeader);
  // Check the bounds before the products below, which could overflow.
  if (header.n_tokens > data_bytes || header.n_documents > data_bytes ||
      header.n_loss_tokens > header.n_tokens || CacheLayout(header).end != data_bytes)
    return damaged(str(data_bytes, " bytes after its header, which says ", header.n_tokens, " tokens of ",
                       header.bytes_per_token, ", ", header.n_loss_tokens, " of them in the loss, in ",
                       header.n_documents, " documents"));
  return {};
}

}  // namespace

TokenCache::~TokenCache() {
  if (mapping_ != nullptr) ::munmap(mapping_, mapping_bytes_);
}

/// Reading a mapped file that was truncated faults, so a cache is only ever replaced by rename, never
/// rewritten.
Status TokenCache::map(File& file, std::uint64_t bytes) {
  const std::byte* begin = nullptr;
  if (file.descriptor() >= 0) {
    void* const at =
        ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
    if (at == MAP_FAILED)
      return Status::error(Code::io_error,
                           str("mapping ", bytes, " bytes: ", std::generic_category().message(errno)));
    mapping_ = at;
    mapping_bytes_ = static_cast<std::size_t>(bytes);
    begin = static_cast<const std::byte*>(at);
  } else {
    heap_.resize(static_cast<std::size_t>(bytes));
    STRATA_TRY(read_exact(file, 0, heap_));
    begin = heap_.data();
  }
  payload_ = begin + sizeof(CacheHeader);
  return {};
}

void TokenCache::point_into(const CacheHeader& header) noexcept {
  const CacheLayout layout(header);
  tokens_ = payload_;
  if (layout.documents > layout.loss_mask)
    loss_mask_ = reinterpret_cast<const std::uint64_t*>(payload_ + layout.loss_mask);
  documents_ = reinterpret_cast<const std::uint64_t*>(payload_ + layout.documents);
  payload_bytes_ = layout.end;
  n_tokens_ = header.n_tokens;
  n_documents_ = header.n_documents;
  n_loss_tokens_ = header.n_loss_tokens;
  source_bytes_ = header.source_bytes;
  bytes_per_token_ = header.bytes_per_token;
  source_digest_ = header.sources;
  chat_mark_ = header.chat;
}

/// A valid checksum does not prove that strata wrote the file, and these ids index tables: embeddings, and
/// token_bytes_ here.
Status TokenCache::check_payload() const {
  for (std::uint64_t i = 0; i < n_tokens_; ++i)
    if (static_cast<std::uint32_t>(token(i)) >= token_bytes_.size())
      return damaged(str("token ", i, " is ", token(i), " in a vocabulary of ", token_bytes_.size()));
  std::uint64_t counted = n_tokens_;
  if (loss_mask_ != nullptr) {
    counted = 0;
    for (std::uint64_t w = 0; w < (n_tokens_ + 63) / 64; ++w)
      counted += static_cast<std::uint64_t>(std::popcount(loss_mask_[w]));
  }
  if (counted != n_loss_tokens_)
    return damaged(str(counted, " tokens in the loss, but its header says ", n_loss_tokens_));
  for (std::uint64_t d = 0; d < n_documents_; ++d)
    if (document_begin(d) >= document_end(d) || (d == 0 && document_begin(d) != 0) ||
        document_end(d) > n_tokens_)
      return damaged(str("document ", d, " begins at token ", document_begin(d), " and the next at ",
                         document_end(d), " of ", n_tokens_));
  if (n_documents_ == 0 && n_tokens_ > 0) return damaged(str(n_tokens_, " tokens, but no document"));
  return {};
}

Status TokenCache::load(File& file, const Tokenizer& tokenizer) {
  STRATA_TRY_ASSIGN(const std::uint64_t bytes, file.size());
  if (bytes < sizeof(CacheHeader))
    return damaged(str(bytes, " bytes, but a token cache has at least ", sizeof(CacheHeader)));
  CacheHeader header;
  STRATA_TRY(read_exact(file, 0, std::as_writable_bytes(std::span(&header, 1))));
  STRATA_TRY(check_header(header, bytes));
  if (header.tokenizer != tokenizer.document_digest())
    return Status::error(Code::invalid, str("built with tokenizer ", to_hex(header.tokenizer),
                                            ", but opened with ", to_hex(tokenizer.document_digest())));
  STRATA_TRY(map(file, bytes));
  if (digest_of(std::span(payload_, static_cast<std::size_t>(bytes - sizeof(CacheHeader)))) != header.payload)
    return damaged("its tokens are damaged: the checksum differs");
  if (header.vocab_size != static_cast<std::uint32_t>(tokenizer.vocab_size()))
    return damaged(
        str("a vocabulary of ", header.vocab_size, ", but its tokenizer has ", tokenizer.vocab_size()));
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    token_bytes_.push_back(static_cast<std::uint16_t>(tokenizer.token_bytes(id)));
  point_into(header);
  return check_payload();
}

Result<std::string> detail::source_form(Io& io, const std::string& path) {
  const std::string_view packed = is_gzip(path) ? " in gzip" : "";
  if (has_records(path)) return str("records", packed);
  STRATA_TRY_ASSIGN(const std::unique_ptr<ByteSource> source, ByteSource::open(io, path));
  STRATA_TRY_ASSIGN(const std::string_view head, source->next());
  return str(without_byte_order_mark(head).size() == head.size() ? "text" : "text after its mark", packed);
}

Result<std::unique_ptr<TokenCache>> TokenCache::open(Io& io, const Tokenizer& tokenizer,
                                                     const std::string& cache_path) {
  STRATA_TRY_ASSIGN(const std::unique_ptr<File> file, io.open(cache_path, OpenMode::read));
  auto self = std::unique_ptr<TokenCache>(new TokenCache);
  STRATA_TRY(self->load(*file, tokenizer).annotate(cache_path));
  return self;
}

Result<bool> TokenCache::is_cache(Io& io, const std::string& path) {
  STRATA_TRY_ASSIGN(const std::unique_ptr<File> file, io.open(path, OpenMode::read));
  std::array<char, detail::kCacheMagic.size()> magic{};
  STRATA_TRY_ASSIGN(const std::uint64_t bytes, file->size());
  if (bytes < magic.size()) return false;
  STRATA_TRY(read_exact(*file, 0, std::as_writable_bytes(std::span(magic))));
  return magic == detail::kCacheMagic;
}

Result<std::unique_ptr<TokenCache>> TokenCache::open_or_build(Io& io, const Tokenizer& tokenizer,
                                                              const std::vector<std::string>& sources,
                                                              const std::string& cache_path,
                                                              const Result<ChatTemplate>& chat,
                                                              RecordUse use) try {
  if (sources.empty()) return Status::error(Code::invalid, str(cache_path, ": no source files were given"));
  std::string why = "no cache yet";
  if (io.exists(cache_path)) {
    Result<std::unique_ptr<TokenCache>> found = open(io, tokenizer, cache_path);
    STRATA_TRY_ASSIGN(const Digest digest, digest_sources(io, sources));
    const bool same_text = found && (*found)->source_digest_ == digest;
    const bool same_chat = found && ((*found)->chat_mark_ == decltype(CacheHeader::chat){} ||
                                     (*found)->chat_mark_ == detail::chat_mark(chat));
    if (same_text && same_chat) {
      (*found)->notes_ = forms_of(io, sources, chat, use);
      return found;
    }
    why = !found       ? std::string(found.error().message())
          : !same_text ? "built from other text"
                       : "built with another chat template";
  }
  detail::TokenCacheWriter writer(io, tokenizer, chat, cache_path, use);
  STRATA_TRY(writer.write(sources));
  STRATA_TRY_ASSIGN(std::unique_ptr<TokenCache> built, open(io, tokenizer, cache_path));
  built->rebuild_reason_ = std::move(why);
  built->notes_ = std::move(writer).notes();
  return built;
} catch (const std::bad_alloc&) {
  return Status::error(Code::out_of_memory,
                       str(cache_path, ": not enough memory to encode ", sources.size(), " files"));
}

std::uint64_t TokenCache::source_bytes(std::uint64_t begin, std::uint64_t end) const noexcept {
  std::uint64_t bytes = 0;
  for (std::uint64_t i = begin; i < end; ++i)
    if (const auto id = static_cast<std::uint32_t>(token(i)); id < token_bytes_.size())
      bytes += token_bytes_[id];
  return bytes;
}

}  // namespace strata
