#include "terminal/line_reader.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <strata/runtime/str.h>

namespace strata::cli {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 16;

}  // namespace

Result<LineReader::Got> LineReader::next(bool waits, std::string& line) {
  while (!take(line)) {
    if (ended_) {
      const bool rest = begin_ < buffer_.size() || skips_;
      line = buffer_.substr(begin_);
      buffer_.clear();
      begin_ = searched_ = 0;
      if (!rest) return Got::end;
      ++line_number_;
      break;
    }
    if (buffer_.size() - begin_ > max_bytes_) {
      skips_ = true;
      buffer_.clear();
      begin_ = searched_ = 0;
    }
    STRATA_TRY_ASSIGN(const bool read, fill(waits));
    if (!read) return Got::nothing;
  }
  const bool too_long = skips_ || line.size() > max_bytes_;
  skips_ = false;
  return too_long ? Got::too_long : Got::line;
}

/// Takes a line from the buffer; false if it has no whole one.
bool LineReader::take(std::string& line) {
  const std::size_t end = buffer_.find('\n', searched_);
  if (end == std::string::npos) {
    searched_ = buffer_.size();
    return false;
  }
  line = buffer_.substr(begin_, end - begin_);
  begin_ = searched_ = end + 1;
  ++line_number_;
  return true;
}

/// Reads what is there; false if that is nothing yet.
Result<bool> LineReader::fill(bool waits) {
  pollfd input{descriptor_, POLLIN, 0};
  if (!waits && ::poll(&input, 1, 0) == 0) return false;
  buffer_.erase(0, begin_);
  searched_ -= begin_;
  begin_ = 0;
  const std::size_t size = buffer_.size();
  buffer_.resize(size + kReadBytes);
  ssize_t n = 0;
  do n = ::read(descriptor_, buffer_.data() + size, kReadBytes);
  while (n < 0 && errno == EINTR);
  const int error = errno;
  buffer_.resize(size + static_cast<std::size_t>(n > 0 ? n : 0));
  if (n < 0) return Status::error(Code::io_error, str("reading the input: ", std::strerror(error)));
  ended_ = n == 0;
  return true;
}

}  // namespace strata::cli
