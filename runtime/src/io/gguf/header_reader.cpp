#include "io/gguf/header_reader.h"

#include <algorithm>

#include <strata/runtime/str.h>
#include <strata/runtime/utf8.h>

namespace strata::detail {
namespace {

constexpr std::uint64_t kBufferBytes = 1 << 20;

}  // namespace

Status GgufHeaderReader::corrupt_at(std::uint64_t offset, std::string_view why) const {
  return Status::error(Code::corrupt, str("byte ", offset, ": ", why));
}

Status GgufHeaderReader::check_count(std::uint64_t n, std::uint64_t bytes_each, std::string_view what) const {
  const std::uint64_t left = size_ - at_;
  if (n <= left / bytes_each) return {};
  return corrupt_at(at_, str(what, ": ", n, " of at least ", bytes_each, " bytes each, but the file has ",
                             left, " bytes left of ", size_));
}

Status GgufHeaderReader::skip(std::uint64_t bytes, std::string_view what) {
  if (bytes > size_ - at_)
    return corrupt_at(at_, str(what, " needs ", bytes, " bytes, but the file ends after ", size_ - at_));
  at_ += bytes;
  return {};
}

Status GgufHeaderReader::take(std::span<std::byte> into, std::string_view what) {
  if (into.size() > size_ - at_)
    return corrupt_at(at_,
                      str(what, " needs ", into.size(), " bytes, but the file ends after ", size_ - at_));
  for (std::size_t done = 0; done < into.size();) {
    const std::uint64_t in_buffer = at_ - buffer_begin_;
    if (at_ < buffer_begin_ || in_buffer >= buffer_.size()) {
      buffer_.resize(static_cast<std::size_t>(std::min(kBufferBytes, size_ - at_)));
      STRATA_TRY(read_exact(file_, at_, buffer_));
      buffer_begin_ = at_;
      continue;
    }
    const std::size_t n = std::min(into.size() - done, buffer_.size() - static_cast<std::size_t>(in_buffer));
    std::memcpy(into.data() + done, buffer_.data() + in_buffer, n);
    done += n;
    at_ += n;
  }
  return {};
}

Result<std::string> GgufHeaderReader::text(std::string_view what, std::uint64_t limit) {
  const std::uint64_t begin = at_;
  STRATA_TRY_ASSIGN(const std::uint64_t n, number<std::uint64_t>(what));
  STRATA_TRY(check_count(n, 1, what));
  if (n > limit) return corrupt_at(begin, str(what, " has ", n, " bytes, at most ", limit, " are read"));
  std::string text(static_cast<std::size_t>(n), '\0');
  STRATA_TRY(take(std::as_writable_bytes(std::span(text.data(), text.size())), what));
  if (const std::size_t bad = first_non_utf8(text); bad < text.size())
    return corrupt_at(begin + 8 + bad, str(what, " is not UTF-8"));
  return text;
}

}  // namespace strata::detail
