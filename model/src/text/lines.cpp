#include "text/lines.h"

#include <algorithm>
#include <string_view>

#include <strata/model/text_check.h>
#include <strata/runtime/units.h>

namespace strata::detail {
namespace {

constexpr std::size_t kBlockBytes = kMiB;

class LineCutter {
 public:
  LineCutter(std::size_t max_bytes, const std::function<Status(const Line&)>& take)
      : max_bytes_(max_bytes), take_(take) {}

  Status add(std::string_view block) {
    while (!block.empty()) {
      const std::size_t end = block.find('\n');
      append(block.substr(0, end));
      if (end == std::string_view::npos) return {};
      STRATA_TRY(give());
      block.remove_prefix(end + 1);
    }
    return {};
  }
  Status finish() { return open_ ? give() : Status::ok(); }

 private:
  void append(std::string_view part) {
    open_ = open_ || !part.empty();
    const std::size_t room = max_bytes_ - text_.size();
    too_long_ = too_long_ || part.size() > room;
    text_ += part.substr(0, room);
  }
  Status give() {
    STRATA_TRY(take_({++number_, text_, too_long_}));
    text_.clear();
    open_ = too_long_ = false;
    return {};
  }

  std::size_t max_bytes_;
  const std::function<Status(const Line&)>& take_;
  std::string text_;
  std::uint64_t number_ = 0;
  bool open_ = false, too_long_ = false;
};

}  // namespace

Result<FileDigest> for_each_line(Io& io, const std::string& path, std::size_t max_bytes,
                                 const std::function<Status(const Line&)>& take) {
  STRATA_TRY_ASSIGN(const std::unique_ptr<File> file, io.open(path, OpenMode::read));
  STRATA_TRY_ASSIGN(const std::uint64_t size, file->size());
  Digester digester;
  LineCutter cutter(max_bytes, take);
  std::string block;
  for (std::uint64_t at = 0; at < size; at += block.size()) {
    block.resize(static_cast<std::size_t>(std::min<std::uint64_t>(size - at, kBlockBytes)));
    STRATA_TRY(read_exact(*file, at, std::as_writable_bytes(std::span(block))));
    digester.update(std::string_view(block));
    if (at == 0) STRATA_TRY(check_byte_order_mark(path, block));
    STRATA_TRY(cutter.add(at == 0 ? without_byte_order_mark(block) : block));
  }
  STRATA_TRY(cutter.finish());
  return FileDigest{digester.digest(), size};
}

}  // namespace strata::detail
