#include "data/records/byte_source.h"

#include <algorithm>
#include <span>
#include <utility>

#include <zlib.h>

#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

namespace strata::detail {
namespace {

constexpr std::size_t kBlockBytes = kMiB;
constexpr std::string_view kSuffix = ".gz";

class PlainSource final : public ByteSource {
 public:
  PlainSource(std::unique_ptr<File> file, std::uint64_t size) : ByteSource(std::move(file), size) {}
  Result<std::string_view> next() override { return next_stored(); }
};

/// gzip data may have several members, one after the other, whose texts are one text (RFC 1952, section 2.2).
/// Zeros behind a member are the padding of tapes and archives, which gzip skips, too.
class GzipSource final : public ByteSource {
 public:
  GzipSource(std::unique_ptr<File> file, std::uint64_t size)
      : ByteSource(std::move(file), size), text_(kBlockBytes, '\0') {}
  ~GzipSource() override {
    if (is_open_) inflateEnd(&stream_);
  }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

  Result<std::string_view> next() override {
    stream_.next_out = reinterpret_cast<Bytef*>(text_.data());
    stream_.avail_out = static_cast<uInt>(text_.size());
    while (stream_.avail_out == text_.size()) {
      if (stream_.avail_in == 0) {
        STRATA_TRY_ASSIGN(const std::string_view more, next_stored());
        if (more.empty()) return in_member_ || !is_open_ ? cut() : Result<std::string_view>("");
        // zlib only reads it; its interface is older than const.
        stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(more.data()));
        stream_.avail_in = static_cast<uInt>(more.size());
      }
      if (is_open_ && !in_member_) STRATA_TRY(skip_padding());
      if (stream_.avail_in > 0) STRATA_TRY(inflate_some());
    }
    return std::string_view(text_).substr(0, text_.size() - stream_.avail_out);
  }

 private:
  Status skip_padding() {
    while (stream_.avail_in > 0 && *stream_.next_in == 0) {
      ++stream_.next_in;
      --stream_.avail_in;
    }
    constexpr Bytef kMagic = 0x1f;  // the first byte of the next member
    if (stream_.avail_in == 0 || *stream_.next_in == kMagic) return {};
    const std::uint64_t begin = at() - stream_.avail_in;
    return Status::error(
        Code::corrupt, str(path(), ": ", plural(size() - begin, "byte"), " behind the gzip data, from byte ",
                           begin, ": is the file complete?"));
  }
  Status inflate_some() {
    constexpr int kGzip = 16;  // zlib.h: adding 16 to the window bits asks for gzip's header and checksum
    if (!is_open_ && inflateInit2(&stream_, kGzip + MAX_WBITS) != Z_OK)
      return Status::error(Code::out_of_memory, str(path(), ": not enough memory to uncompress it"));
    if (is_open_ && !in_member_ && inflateReset(&stream_) != Z_OK)
      return Status::error(Code::internal, str(path(), ": zlib refuses a second member"));
    is_open_ = in_member_ = true;
    const int outcome = inflate(&stream_, Z_NO_FLUSH);
    if (outcome == Z_MEM_ERROR)
      return Status::error(Code::out_of_memory, str(path(), ": not enough memory to uncompress it"));
    if (outcome == Z_STREAM_END) in_member_ = false;
    if (outcome == Z_OK || outcome == Z_STREAM_END || outcome == Z_BUF_ERROR) return {};
    return Status::error(Code::corrupt,
                         str(path(), ": the gzip data is damaged before byte ", at() - stream_.avail_in, ": ",
                             stream_.msg != nullptr ? stream_.msg : "it is no gzip data"));
  }
  Result<std::string_view> cut() const {
    return Status::error(Code::corrupt, str(path(), ": the gzip data ends early, after ", at(),
                                            " bytes: the file is not complete"));
  }

  z_stream stream_{};
  std::string text_;
  bool is_open_ = false, in_member_ = false;
};

}  // namespace

bool is_gzip(std::string_view path) { return without_gz(path).size() < path.size(); }

std::string_view without_gz(std::string_view path) {
  if (path.size() <= kSuffix.size()) return path;
  const std::string_view end = path.substr(path.size() - kSuffix.size());
  const auto same = [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b - 'A' + 'a' : b); };
  const bool has = std::equal(kSuffix.begin(), kSuffix.end(), end.begin(), same);
  return has ? path.substr(0, path.size() - kSuffix.size()) : path;
}

Result<std::unique_ptr<ByteSource>> ByteSource::open(Io& io, const std::string& path) {
  STRATA_TRY_ASSIGN(std::unique_ptr<File> file, io.open(path, OpenMode::read));
  STRATA_TRY_ASSIGN(const std::uint64_t size, file->size());
  if (is_gzip(path)) return std::make_unique<GzipSource>(std::move(file), size);
  return std::make_unique<PlainSource>(std::move(file), size);
}

Result<std::string_view> ByteSource::next_stored() {
  block_.resize(static_cast<std::size_t>(std::min<std::uint64_t>(size_ - at_, kBlockBytes)));
  STRATA_TRY(read_exact(*file_, at_, std::as_writable_bytes(std::span(block_))));
  digester_.update(std::string_view(block_));
  at_ += block_.size();
  return std::string_view(block_);
}

}  // namespace strata::detail
