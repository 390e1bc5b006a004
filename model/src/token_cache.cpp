#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>
#include <type_traits>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

#include <strata/model/token_cache.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

#include "pretokenizer.h"

namespace strata {
namespace {

static_assert(std::endian::native == std::endian::little, "the cache is little-endian and read in place");

constexpr std::array<char, 8> kMagic = {'S', 'T', 'R', 'A', 'T', 'O', 'K', '\n'};
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kBlockBytes = 4 * kMiB;
constexpr std::int32_t kSmallVocab = 65536;

struct Header {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t bytes_per_token = 0;
  std::uint64_t n_tokens = 0;
  std::uint64_t source_bytes = 0;
  std::uint32_t vocab_size = 0;
  std::uint32_t n_sources = 0;
  Digest tokenizer{};
  Digest sources{};
  Digest tokens{};
  std::array<std::byte, 24> reserved{};
  Digest header{};  // of the bytes before it

  Digest digest_of_rest() const noexcept {
    return digest_of(std::as_bytes(std::span(this, 1)).first(offsetof(Header, header)));
  }
};
static_assert(sizeof(Header) == 128 && std::is_trivially_copyable_v<Header>);

std::uint32_t bytes_per_token(std::int32_t vocab_size) noexcept { return vocab_size <= kSmallVocab ? 2 : 4; }

/// One digest for a list of files: their sizes and digests in order, not their paths, so that a corpus may
/// move.
class SourceDigester {
 public:
  void add(const FileDigest& file) noexcept {
    digester_.update(std::as_bytes(std::span(&file.bytes, 1)));
    digester_.update(file.digest);
  }
  Digest digest() const noexcept { return digester_.digest(); }

 private:
  Digester digester_;
};

Result<Digest> digest_sources(Io& io, const std::vector<std::string>& sources) {
  SourceDigester digester;
  for (const std::string& path : sources) {
    STRATA_TRY_ASSIGN(const FileDigest file, digest_file(io, path));
    digester.add(file);
  }
  return digester.digest();
}

Status check_header(const Header& header, std::uint64_t file_bytes) {
  const auto corrupt = [](std::string message) { return Status::error(Code::corrupt, std::move(message)); };
  if (header.magic != kMagic) return corrupt("not a token cache");
  if (header.version != kVersion)
    return Status::error(Code::unsupported,
                         str("token cache version ", header.version, ", this reads ", kVersion));
  if (header.header != header.digest_of_rest()) return corrupt("its header is damaged");
  if (header.bytes_per_token != 2 && header.bytes_per_token != 4)
    return corrupt(str(header.bytes_per_token, " bytes per token"));
  const std::uint64_t data_bytes = file_bytes - sizeof(Header);
  if (data_bytes % header.bytes_per_token != 0 || data_bytes / header.bytes_per_token != header.n_tokens)
    return corrupt(str(data_bytes, " bytes of tokens, its header says ", header.n_tokens, " of ",
                       header.bytes_per_token));
  return {};
}

}  // namespace

/// Writes the file beside its place, block by block, and renames it there.
class TokenCache::Writer {
 public:
  Writer(Io& io, const Tokenizer& tokenizer, const std::string& path)
      : io_(io), tokenizer_(tokenizer), path_(path), temporary_(str(path, ".tmp-", ::getpid())) {}

  Status write(const std::vector<std::string>& sources) {
    Status status = write_all_sources(sources);
    // A half-written temporary is of no use to anyone; the first error is the one to report.
    if (!status && io_.exists(temporary_)) (void)io_.remove_all(temporary_).is_ok();
    return status;
  }

 private:
  Status write_all_sources(const std::vector<std::string>& sources) {
    STRATA_TRY_ASSIGN(file_, io_.open(temporary_, OpenMode::truncate));
    header_.bytes_per_token = bytes_per_token(tokenizer_.vocab_size());
    SourceDigester digester;
    for (const std::string& source : sources) {
      STRATA_TRY_ASSIGN(const FileDigest digest, encode_source(source));
      digester.add(digest);
      header_.source_bytes += digest.bytes;
    }
    if (header_.source_bytes == 0)
      return Status::error(Code::invalid, str("the corpus is empty: ", sources.size(),
                                              " files with 0 bytes, the first is ", sources.front()));
    header_.vocab_size = static_cast<std::uint32_t>(tokenizer_.vocab_size());
    header_.n_sources = static_cast<std::uint32_t>(sources.size());
    header_.tokenizer = tokenizer_.digest();
    header_.sources = digester.digest();
    header_.tokens = tokens_digester_.digest();
    header_.header = header_.digest_of_rest();
    STRATA_TRY(write_all_at(0, std::as_bytes(std::span(&header_, 1))));
    STRATA_TRY(file_->sync());
    STRATA_TRY(io_.rename(temporary_, path_));
    const std::size_t slash = path_.rfind('/');
    return io_.sync_dir(slash == std::string::npos ? "." : slash == 0 ? "/" : path_.substr(0, slash));
  }

  Result<FileDigest> encode_source(const std::string& path) {
    STRATA_TRY_ASSIGN(const std::unique_ptr<File> source, io_.open(path, OpenMode::read));
    STRATA_TRY_ASSIGN(const std::uint64_t size, source->size());
    Digester digester;
    std::string text;  // read and not yet encoded
    for (std::uint64_t at = 0; at < size;) {
      const std::size_t old = text.size();
      text.resize(old + static_cast<std::size_t>(std::min<std::uint64_t>(size - at, kBlockBytes)));
      const auto block = std::span(text).subspan(old);
      STRATA_TRY(read_exact(*source, at, std::as_writable_bytes(block)));
      digester.update(std::as_bytes(block));
      at += block.size();
      const std::size_t cut = at == size ? text.size() : detail::last_safe_cut(text);
      STRATA_TRY(append(tokenizer_.encode(std::string_view(text).substr(0, cut))));
      text.erase(0, cut);
    }
    if (tokenizer_.end_of_text() >= 0) STRATA_TRY(append({tokenizer_.end_of_text()}));
    return FileDigest{digester.digest(), size};
  }

  Status append(const std::vector<std::int32_t>& ids) {
    const std::size_t width = header_.bytes_per_token;
    packed_.resize(ids.size() * width);
    for (std::size_t i = 0; i < ids.size(); ++i)
      std::memcpy(&packed_[i * width], &ids[i], width);  // the low bytes
    STRATA_TRY(write_all_at(sizeof(Header) + header_.n_tokens * width, packed_));
    tokens_digester_.update(packed_);
    header_.n_tokens += ids.size();
    return {};
  }
  Status write_all_at(std::uint64_t offset, std::span<const std::byte> bytes) {
    return strata::write_all(*file_, offset, bytes);
  }

  Io& io_;
  const Tokenizer& tokenizer_;
  std::string path_;
  std::string temporary_;
  std::unique_ptr<File> file_;
  Header header_;
  Digester tokens_digester_;
  std::vector<std::byte> packed_;
};

TokenCache::~TokenCache() {
  if (mapping_ != nullptr) ::munmap(mapping_, mapping_bytes_);
}

/// A mapped file that someone truncates faults on reading; the cache is replaced by rename only, never
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
  tokens_ = begin + sizeof(Header);
  return {};
}

Result<std::unique_ptr<TokenCache>> TokenCache::open(Io& io, const Tokenizer& tokenizer,
                                                     const std::string& cache_path) {
  STRATA_TRY_ASSIGN(const std::unique_ptr<File> file, io.open(cache_path, OpenMode::read));
  auto self = std::unique_ptr<TokenCache>(new TokenCache);
  const auto load = [&]() -> Status {
    STRATA_TRY_ASSIGN(const std::uint64_t bytes, file->size());
    if (bytes < sizeof(Header))
      return Status::error(Code::corrupt, str(bytes, " bytes, a token cache has at least ", sizeof(Header)));
    Header header;
    STRATA_TRY(read_exact(*file, 0, std::as_writable_bytes(std::span(&header, 1))));
    STRATA_TRY(check_header(header, bytes));
    if (header.tokenizer != tokenizer.digest())
      return Status::error(Code::invalid, str("made by tokenizer ", to_hex(header.tokenizer), ", given is ",
                                              to_hex(tokenizer.digest())));
    STRATA_TRY(self->map(*file, bytes));
    if (digest_of(std::span(self->tokens_, static_cast<std::size_t>(bytes - sizeof(Header)))) !=
        header.tokens)
      return Status::error(Code::corrupt, "its tokens are damaged: the checksum differs");
    self->n_tokens_ = header.n_tokens;
    self->source_bytes_ = header.source_bytes;
    self->bytes_per_token_ = header.bytes_per_token;
    self->source_digest_ = header.sources;
    for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id)
      self->token_bytes_.push_back(static_cast<std::uint16_t>(tokenizer.token_bytes(id)));
    // A checksum is no proof of origin, and ids index tables: embeddings, and token_bytes_ here.
    for (std::uint64_t i = 0; i < self->n_tokens_; ++i)
      if (static_cast<std::uint32_t>(self->token(i)) >= header.vocab_size ||
          self->token(i) >= tokenizer.vocab_size())
        return Status::error(Code::corrupt, str("token ", i, " is ", self->token(i), " in a vocabulary of ",
                                                tokenizer.vocab_size()));
    return {};
  };
  STRATA_TRY(load().annotate(cache_path));
  return self;
}

Result<std::unique_ptr<TokenCache>> TokenCache::open_or_build(Io& io, const Tokenizer& tokenizer,
                                                              const std::vector<std::string>& sources,
                                                              const std::string& cache_path) try {
  if (sources.empty())
    return Status::error(Code::invalid, str(cache_path, ": no text files to make it from"));
  std::string why = "no cache yet";
  if (io.exists(cache_path)) {
    Result<std::unique_ptr<TokenCache>> found = open(io, tokenizer, cache_path);
    STRATA_TRY_ASSIGN(const Digest digest, digest_sources(io, sources));
    if (found && (*found)->source_digest_ == digest) return found;
    why = found ? "made from other text" : std::string(found.error().message());
  }
  STRATA_TRY(Writer(io, tokenizer, cache_path).write(sources).annotate(str("building ", cache_path)));
  STRATA_TRY_ASSIGN(std::unique_ptr<TokenCache> built, open(io, tokenizer, cache_path));
  built->rebuilt_because_ = std::move(why);
  return built;
} catch (const std::bad_alloc&) {
  return Status::error(Code::out_of_memory,
                       str(cache_path, ": no memory to encode ", sources.size(), " files"));
}

std::uint64_t TokenCache::source_bytes(std::uint64_t begin, std::uint64_t end) const noexcept {
  std::uint64_t bytes = 0;
  for (std::uint64_t i = begin; i < end; ++i) bytes += token_bytes_[static_cast<std::size_t>(token(i))];
  return bytes;
}

}  // namespace strata
