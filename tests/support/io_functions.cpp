// Stands in for the four free functions of runtime/io.h in a tree that has no posix_io.cpp yet;
// tests/CMakeLists.txt leaves it out as soon as there is one.
#include <algorithm>

#include <strata/runtime/io.h>
#include <strata/runtime/str.h>

namespace strata {

Status read_exact(File& file, std::uint64_t offset, std::span<std::byte> into) {
  for (std::size_t done = 0; done < into.size();) {
    STRATA_TRY_ASSIGN(const std::size_t n, file.read_at(offset + done, into.subspan(done)));
    if (n == 0)
      return Status::error(Code::corrupt,
                           str(file.path(), ": ends after ", done, " of ", into.size(), " bytes"));
    done += n;
  }
  return {};
}

Status write_all(File& file, std::uint64_t offset, std::span<const std::byte> from) {
  for (std::size_t done = 0; done < from.size();) {
    STRATA_TRY_ASSIGN(const std::size_t n, file.write_at(offset + done, from.subspan(done)));
    done += n;
  }
  return {};
}

Result<std::string> read_text(Io& io, const std::string& path, std::uint64_t limit_bytes) {
  STRATA_TRY_ASSIGN(const std::unique_ptr<File> file, io.open(path, OpenMode::read));
  STRATA_TRY_ASSIGN(const std::uint64_t size, file->size());
  if (size > limit_bytes)
    return Status::error(Code::invalid, str(path, ": ", size, " bytes, at most ", limit_bytes, " are read"));
  std::string text(static_cast<std::size_t>(size), '\0');
  STRATA_TRY(read_exact(*file, 0, std::as_writable_bytes(std::span(text))));
  return text;
}

Status write_text_atomically(Io& io, const std::string& path, std::string_view text) {
  STRATA_TRY_ASSIGN(const std::unique_ptr<File> file, io.open(path + ".tmp", OpenMode::truncate));
  STRATA_TRY(write_all(*file, 0, std::as_bytes(std::span(text))));
  STRATA_TRY(file->sync());
  return io.rename(path + ".tmp", path);
}

}  // namespace strata
