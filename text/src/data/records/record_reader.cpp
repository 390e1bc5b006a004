#include "data/records/record_reader.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include <strata/text/text_check.h>
#include <strata/runtime/str.h>

#include "data/records/byte_source.h"

namespace strata::detail {
namespace {

using Take = std::function<Status(const Record&)>;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

/// Collects the bytes of one record, up to a limit.
class Cutter {
 public:
  Cutter(std::size_t max_bytes, const Take& take, bool in_array)
      : max_bytes_(max_bytes), take_(take), in_array_(in_array) {}

 protected:
  void begin(std::uint64_t offset) { offset_ = offset; }
  void append(std::string_view part) {
    const std::size_t room = max_bytes_ - text_.size();
    too_long_ = too_long_ || part.size() > room;
    text_ += part.substr(0, room);
  }
  Status give() {
    STRATA_TRY(take_({++number_, offset_, text_, in_array_, too_long_}));
    text_.clear();
    too_long_ = false;
    return {};
  }
  std::uint64_t number() const noexcept { return number_; }

 private:
  std::size_t max_bytes_;
  const Take& take_;
  bool in_array_;
  std::string text_;
  std::uint64_t number_ = 0, offset_ = 0;
  bool too_long_ = false;
};

class LineCutter : Cutter {
 public:
  LineCutter(std::size_t max_bytes, const Take& take) : Cutter(max_bytes, take, false) {}

  Status add(std::string_view block, std::uint64_t offset) {
    while (!block.empty()) {
      if (!open_) begin(offset);
      const std::size_t end = block.find('\n');
      append(block.substr(0, end));
      open_ = end == std::string_view::npos;
      if (open_) return {};
      STRATA_TRY(give());
      block.remove_prefix(end + 1);
      offset += end + 1;
    }
    return {};
  }
  Status finish() { return open_ ? give() : Status::ok(); }

 private:
  bool open_ = false;
};

/// Finds the elements of an array by brackets and quotes alone: what is between is for the parser to judge.
class ArrayCutter : Cutter {
 public:
  ArrayCutter(const std::string& path, std::size_t max_bytes, const Take& take)
      : Cutter(max_bytes, take, true), path_(path) {}

  Status add(std::string_view block, std::uint64_t offset) {
    std::size_t from = 0;  // where the part of the record that is in this block begins
    for (std::size_t i = 0; i < block.size(); ++i) {
      const char c = block[i];
      if (place_ == Place::record) {
        if (!ends_at(c)) continue;
        append(block.substr(from, i + (is_bracketed_ ? 1 : 0) - from));
        STRATA_TRY(give());
        place_ = Place::behind_record;
        if (is_bracketed_) continue;
      }
      if (is_space(c)) continue;
      STRATA_TRY(between(c, offset + i));
      if (place_ == Place::record) from = i;
    }
    if (place_ == Place::record) append(block.substr(from));
    return {};
  }
  Status finish() const {
    if (place_ == Place::behind_array) return {};
    return Status::error(Code::invalid,
                         str(path_, ": the array does not end: the file has no ']' after record ", number(),
                             "; is it complete?"));
  }

 private:
  enum class Place : std::uint8_t {
    before_array,
    before_first,
    before_record,
    record,
    behind_record,
    behind_array
  };

  /// A byte that is no white space, outside of records.
  Status between(char c, std::uint64_t offset) {
    const bool at_end = c == ']';
    if (place_ == Place::before_array) {
      place_ = Place::before_first;  // the caller has seen the '['
      return {};
    }
    if (place_ == Place::behind_record && (c == ',' || at_end)) {
      place_ = at_end ? Place::behind_array : Place::before_record;
      return {};
    }
    if (place_ == Place::before_first && at_end) {
      place_ = Place::behind_array;
      return {};
    }
    const bool may_begin = place_ == Place::before_first || place_ == Place::before_record;
    if (!may_begin || c == ',' || at_end) return misplaced(c, offset);
    place_ = Place::record;
    begin(offset);
    is_bracketed_ = c == '{' || c == '[' || c == '"';
    depth_ = 0;
    in_string_ = is_escaped_ = false;
    ends_at(c);
    return {};
  }
  Status misplaced(char c, std::uint64_t offset) const {
    return Status::error(Code::invalid,
                         str(path_, ": byte ", offset, ", after record ", number(), ": ",
                             place_ == Place::behind_array ? "something behind the ']' that ends the array"
                             : c == ',' || c == ']'        ? "a comma without a record behind it"
                                                           : "no comma before the next record"));
  }
  /// Whether the record ends with this byte or, if it has no brackets, before it.
  bool ends_at(char c) {
    if (in_string_) {
      const bool closes = c == '"' && !is_escaped_;
      is_escaped_ = c == '\\' && !is_escaped_;
      in_string_ = !closes;
      return closes && depth_ == 0;
    }
    if (!is_bracketed_) return c == ',' || c == ']' || is_space(c);
    in_string_ = c == '"';
    if (c == '{' || c == '[') ++depth_;
    if (c == '}' || c == ']') return --depth_ == 0;
    return false;
  }

  const std::string& path_;
  Place place_ = Place::before_array;
  std::uint64_t depth_ = 0;
  bool is_bracketed_ = false, in_string_ = false, is_escaped_ = false;
};

/// Feeds the blocks of a file after its byte order mark to `add`, each with its offset.
template <class Add>
Result<ReadText> for_each_block(Io& io, const std::string& path, const Add& add) {
  STRATA_TRY_ASSIGN(const std::unique_ptr<ByteSource> source, ByteSource::open(io, path));
  std::uint64_t offset = 0;
  while (true) {
    STRATA_TRY_ASSIGN(std::string_view block, source->next());
    if (block.empty()) break;
    const std::size_t all = block.size();
    if (offset == 0) {
      STRATA_TRY(check_byte_order_mark(path, block));
      block = without_byte_order_mark(block);
    }
    STRATA_TRY(add(block, offset + (all - block.size())));
    offset += all;
  }
  return ReadText{source->file(), offset};
}

}  // namespace

std::string Record::where() const {
  return in_array ? str("record ", number, " (byte ", offset, ")") : str("line ", number);
}

Result<ReadText> for_each_line(Io& io, const std::string& path, std::size_t max_bytes, const Take& take) {
  LineCutter lines(max_bytes, take);
  STRATA_TRY_ASSIGN(const ReadText text,
                    for_each_block(io, path, [&](std::string_view block, std::uint64_t at) {
                      return lines.add(block, at);
                    }));
  STRATA_TRY(lines.finish());
  return text;
}

Result<ReadText> for_each_record(Io& io, const std::string& path, std::size_t max_bytes, const Take& take) {
  LineCutter lines(max_bytes, take);
  ArrayCutter elements(path, max_bytes, take);
  std::optional<bool> is_array;
  STRATA_TRY_ASSIGN(const ReadText text,
                    for_each_block(io, path, [&](std::string_view block, std::uint64_t at) -> Status {
                      const auto visible = std::find_if_not(block.begin(), block.end(), is_space);
                      if (!is_array && visible != block.end()) is_array = *visible == '[';
                      return is_array.value_or(false) ? elements.add(block, at) : lines.add(block, at);
                    }));
  STRATA_TRY(is_array.value_or(false) ? elements.finish() : lines.finish());
  return text;
}

}  // namespace strata::detail
