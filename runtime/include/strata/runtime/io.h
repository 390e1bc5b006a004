#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <strata/runtime/status.h>

namespace strata {

/// What a direct file asks of each request, in bytes; 1 where nothing is asked.
struct DirectAlignment {
  std::uint32_t memory = 1;
  std::uint32_t offset = 1;  ///< of the offset and of the length
};

/// An open file. One positioned call is one system call and may be short; read_exact and write_all continue.
/// Thread-safe for calls on disjoint ranges. Closed by the destructor.
class File {
 public:
  virtual ~File() = default;
  /// Bytes read, 0 at the end. EINTR is retried. Errors: `io_error` with errno's text.
  virtual Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> into) = 0;
  /// Bytes written. Errors: `io_error`, `no_space`.
  virtual Result<std::size_t> write_at(std::uint64_t offset, std::span<const std::byte> from) = 0;
  /// Data and size are on the device when this returns ok. A failed sync is final: the kernel may have marked
  /// the lost pages clean, so it is never retried and later calls on this file return the same error.
  virtual Status sync() = 0;
  virtual Result<std::uint64_t> size() = 0;
  /// Reserves blocks so that later writes in [0, bytes) cannot meet a full disk. Errors: `no_space`.
  virtual Status allocate(std::uint64_t bytes) = 0;
  /// Takes an exclusive advisory lock, which ends with the file, or with the process however that ends.
  /// Errors: `invalid` when another open file holds it; `io_error`. Files that nobody else can open need
  /// none.
  virtual Status lock() { return Status::ok(); }
  virtual const std::string& path() const noexcept = 0;  ///< that it was opened by
  /// Where the file is now, absolute: its folder may have been renamed. Errors: `not_found` where it was
  /// removed.
  virtual Result<std::string> current_path() const { return path(); }
  virtual bool direct() const noexcept = 0;  ///< opened with O_DIRECT
  virtual DirectAlignment alignment() const noexcept = 0;
  /// The descriptor, for rings that work below this interface; -1 where there is none.
  virtual int descriptor() const noexcept = 0;
};

enum class OpenMode : std::uint8_t {
  read,            ///< an existing regular file, also through a symlink; anything else is `invalid`
  read_no_follow,  ///< the same, but a symlink is `invalid`: for names that came out of a file
  create,          ///< a new file, by the umask; fails where one exists
  truncate,        ///< a new or emptied file, by the umask
  append,          ///< a new file, by the umask, or the end of one; write_at ignores the offset
  scratch,  ///< an unnamed file in the folder `path` (O_TMPFILE, or created exclusively and unlinked), 0600
};

/// The file system. The real one is posix_io(); tests wrap it to fail, shorten, flip or lose.
class Io {
 public:
  virtual ~Io() = default;
  /// `direct` asks for O_DIRECT and falls back to buffered where the file system refuses (File::direct
  /// tells).
  virtual Result<std::unique_ptr<File>> open(const std::string& path, OpenMode mode, bool direct = false) = 0;
  virtual Status make_dirs(const std::string& path) = 0;  ///< with parents, by the umask
  virtual Status rename(const std::string& from, const std::string& to) = 0;
  virtual Status sync_dir(const std::string& path) = 0;
  virtual Status remove_all(const std::string& path) = 0;  ///< a file or a folder with its content
  /// A folder that is empty. Errors: `io_error` where it is not.
  virtual Status remove_empty_dir(const std::string& path);
  virtual Result<std::vector<std::string>> list(const std::string& path) = 0;  ///< names, sorted
  virtual bool exists(const std::string& path) = 0;
  virtual Result<std::uint64_t> free_bytes(const std::string& path) = 0;
};
Io& posix_io() noexcept;

/// Continues short reads until `into` is full; on a direct file from the last aligned place, so that a count
/// the device could not continue from is read again. Errors: `corrupt` when the file ends before, naming both
/// sizes; `io_error` also when many calls in a row make no progress.
Status read_exact(File& file, std::uint64_t offset, std::span<std::byte> into);
/// Continues short writes until all of `from` is written, with the same rule for direct files.
Status write_all(File& file, std::uint64_t offset, std::span<const std::byte> from);
/// The whole of a regular file. Errors: `not_found`, `invalid` past `limit_bytes`.
Result<std::string> read_text(Io& io, const std::string& path, std::uint64_t limit_bytes);
/// Writes beside the target, syncs, renames over it and syncs the folder: readers see the old or the new
/// whole.
Status write_text_atomically(Io& io, const std::string& path, std::string_view text);

}  // namespace strata
