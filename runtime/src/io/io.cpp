// Functions built on the File interface alone, so that a wrapped File follows the same continuation rules.
#include <strata/runtime/io/io.h>

#include <algorithm>

#include <strata/runtime/str.h>

namespace strata {
namespace {

// Consecutive calls that end before the next aligned offset. A healthy device does not do this even twice.
constexpr int kMaxStalls = 64;

// Transfers `total` bytes with `step(done)`, which performs one call from offset `done` on and returns its
// count. On a direct file the count is rounded down to the alignment: the block in which the call stopped is
// transferred again from the caller's own memory, so no bounce buffer is needed. `at_zero` returns the Status
// for a count of zero.
template <class Step, class AtZero>
Status transfer_all(const File& file, std::size_t total, const char* doing, Step step, AtZero at_zero) {
  const std::size_t align = file.direct() ? std::max<std::size_t>(file.alignment().offset, 1) : 1;
  int stalls = 0;
  for (std::size_t done = 0; done < total;) {
    STRATA_TRY_ASSIGN(const std::size_t n, step(done));
    if (n == 0) return at_zero(done);
    if (n > total - done)
      return Status::error(
          Code::internal, str(doing, " ", file.path(), ": ", n, " bytes transferred, but only ", total - done,
                              " were requested"));
    const std::size_t kept = done + n == total ? n : n / align * align;
    stalls = kept == 0 ? stalls + 1 : 0;
    if (stalls == kMaxStalls)
      return Status::error(Code::io_error, str(doing, " ", file.path(), ": no progress in ", kMaxStalls,
                                               " calls after ", done, " of ", total, " bytes"));
    done += kept;
  }
  return Status::ok();
}

}  // namespace

Status read_exact(File& file, std::uint64_t offset, std::span<std::byte> into) {
  return transfer_all(
      file, into.size(), "reading",
      [&](std::size_t done) { return file.read_at(offset + done, into.subspan(done)); },
      [&](std::size_t done) {
        return Status::error(Code::corrupt, str("reading ", file.path(), " at ", offset, ": ", into.size(),
                                                " bytes expected, the file ends after ", done));
      });
}

Status write_all(File& file, std::uint64_t offset, std::span<const std::byte> from) {
  return transfer_all(
      file, from.size(), "writing",
      [&](std::size_t done) { return file.write_at(offset + done, from.subspan(done)); },
      [&](std::size_t done) {
        return Status::error(Code::io_error, str("writing ", file.path(), " at ", offset,
                                                 ": 0 bytes accepted after ", done, " of ", from.size()));
      });
}

Result<std::string> read_text(Io& io, const std::string& path, std::uint64_t limit_bytes) {
  STRATA_TRY_ASSIGN(const std::unique_ptr<File> file, io.open(path, OpenMode::read));
  STRATA_TRY_ASSIGN(const std::uint64_t bytes, file->size());
  if (bytes > limit_bytes)
    return Status::error(Code::invalid,
                         str("reading ", path, ": ", bytes, " bytes, at most ", limit_bytes, " allowed"));
  std::string text(static_cast<std::size_t>(bytes), '\0');
  STRATA_TRY(read_exact(*file, 0, std::as_writable_bytes(std::span(text))));
  return text;
}

Status Io::remove_empty_dir(const std::string& path) {
  STRATA_TRY_ASSIGN(const std::vector<std::string> names, list(path));
  if (names.empty()) return remove_all(path);
  return Status::error(Code::io_error, str("removing ", path, ": it contains ", names.size(), " entries"));
}

}  // namespace strata
