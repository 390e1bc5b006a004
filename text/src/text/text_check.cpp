#include <strata/text/text_check.h>

#include <strata/runtime/str.h>

#include <strata/runtime/utf8.h>

namespace strata {
namespace {

using namespace std::string_view_literals;

constexpr std::size_t kMarkBytes = 4;

// The length of a UTF-8 sequence with this first byte; 1 if no sequence begins with it.
std::size_t length_by(char lead) noexcept {
  const auto byte = static_cast<unsigned char>(lead);
  return byte >= 0xF5 || byte < 0xC2 ? 1 : byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
}

}  // namespace

Status check_byte_order_mark(const std::string& name, std::string_view head) {
  const auto begins = [&](std::string_view mark) { return head.starts_with(mark); };
  const auto encoding = begins("\xFF\xFE\0\0"sv) || begins("\0\0\xFE\xFF"sv) ? "UTF-32"
                        : begins("\xFF\xFE"sv) || begins("\xFE\xFF"sv)       ? "UTF-16"
                                                                             : nullptr;
  if (encoding == nullptr) return {};
  return Status::error(Code::invalid,
                       str(name, ": begins with the byte order mark of ", encoding,
                           "; text is read as UTF-8: iconv -f ", encoding, " -t UTF-8 converts it"));
}

std::string_view without_byte_order_mark(std::string_view text) noexcept {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  return text.starts_with(kMark) ? text.substr(kMark.size()) : text;
}

// Counts invalid bytes of `text`, which begins at byte `begin` of the file. A sequence that the next block
// may complete is kept in tail_, unless the file `ends`.
void TextCheck::count_invalid(std::string_view text, std::uint64_t begin, bool ends) {
  tail_.clear();
  for (std::size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    if (!ends && length_by(text[at]) > text.size() - at) {
      tail_ = text.substr(at);
      return;
    }
    const CodePoint point = code_point_at(text, at);
    if (point.value == kNoCodePoint && invalid_++ == 0) first_invalid_ = begin + at;
    at += point.length;
  }
}

Status TextCheck::add(std::string_view block) {
  if (!has_head_) {
    head_ += block.substr(0, kMarkBytes - head_.size());
    has_head_ = head_.size() == kMarkBytes;
    STRATA_TRY(check_byte_order_mark(name_, head_));
  }
  if (const std::size_t nul = block.find('\0'); nul != std::string_view::npos)
    return Status::error(
        Code::invalid,
        str(name_, ": byte ", bytes_ + nul,
            " is NUL, which text never contains: it is binary data, or UTF-16 text without a byte order mark "
            "(iconv -f UTF-16LE -t UTF-8 converts that)"));
  // A sequence that the last block split is completed byte by byte; the rest is checked in place.
  while (!tail_.empty() && !block.empty()) {
    const std::string joint = tail_ + block.front();
    count_invalid(joint, bytes_ - tail_.size(), false);
    block.remove_prefix(1);
    ++bytes_;
  }
  if (block.empty()) return {};
  count_invalid(block, bytes_, false);
  bytes_ += block.size();
  return {};
}

Status TextCheck::finish() {
  if (!tail_.empty()) count_invalid(std::string(tail_), bytes_ - tail_.size(), true);
  const double share = bytes_ > 0 ? static_cast<double>(invalid_) / static_cast<double>(bytes_) : 0;
  if (share <= kMaxInvalidFraction) return {};
  return Status::error(
      Code::invalid,
      fmt::format("{}: {} of its {} bytes ({:.1f} %) are not UTF-8, the first is byte {}: it is "
                  "binary data, or text in another encoding (iconv converts that)",
                  name_, invalid_, bytes_, 100 * share, first_invalid_));
}

std::string TextCheck::note() const {
  if (invalid_ == 0) return {};
  return str(name_, ": ", invalid_, " of its ", bytes_, " bytes are not UTF-8, the first is byte ",
             first_invalid_, "; they are kept unchanged");
}

Status check_text(const std::string& name, std::string_view text) {
  TextCheck check(name);
  STRATA_TRY(check.add(text));
  return check.finish();
}

}  // namespace strata
