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

/// Alignment in bytes that a file opened with O_DIRECT requires of each request; 1 if there is no
/// requirement.
struct DirectAlignment {
  std::uint32_t memory = 1;
  std::uint32_t offset = 1;  ///< the alignment of the file offset and of the length
};

/// An open file, closed by its destructor. Each positioned call is one system call and may transfer less than
/// asked; read_exact and write_all continue after short transfers. Thread-safe for calls on disjoint ranges.
class File {
 public:
  virtual ~File() = default;
  /// Returns the number of bytes read, 0 at the end of the file. EINTR is retried. Errors: `io_error` with
  /// errno's text.
  virtual Result<std::size_t> read_at(std::uint64_t offset, std::span<std::byte> into) = 0;
  /// Returns the number of bytes written. Errors: `io_error`, `no_space`.
  virtual Result<std::size_t> write_at(std::uint64_t offset, std::span<const std::byte> from) = 0;
  /// Makes data and size durable: they are on the device when this returns ok. A failed sync is final: the
  /// kernel may have marked the lost pages clean, so it is never retried, and later calls on this file return
  /// the same error.
  virtual Status sync() = 0;
  virtual Result<std::uint64_t> size() = 0;
  /// Reserves disk blocks so that later writes in [0, bytes) cannot run out of disk space. Errors:
  /// `no_space`.
  virtual Status allocate(std::uint64_t bytes) = 0;
  /// Takes an exclusive advisory lock, held until the file is closed or the process ends in any way. Errors:
  /// `invalid` if another open file holds it; `io_error`. Files that nothing else can open need no lock.
  virtual Status lock() { return Status::ok(); }
  virtual const std::string& path() const noexcept = 0;  ///< the path it was opened by
  /// The file's present absolute path: its directory may have been renamed. Errors: `not_found` if the file
  /// was removed.
  virtual Result<std::string> current_path() const { return path(); }
  virtual bool direct() const noexcept = 0;  ///< opened with O_DIRECT
  virtual DirectAlignment alignment() const noexcept = 0;
  /// The file descriptor, for io_uring, which bypasses this interface; -1 if there is none.
  virtual int descriptor() const noexcept = 0;
};

enum class OpenMode : std::uint8_t {
  read,            ///< an existing regular file, possibly through a symlink; anything else is `invalid`
  read_no_follow,  ///< as `read`, but a symlink is `invalid`: for names that were read from a file
  update,          ///< an existing regular file, for writing in it; a symlink is `invalid`
  create,          ///< a new file, with the umask's permissions; fails if it exists
  truncate,        ///< a new or truncated file, with the umask's permissions
  append,          ///< a new file, with the umask's permissions, or the end of an existing one; write_at
                   ///< ignores the offset
  scratch,  ///< an unnamed file in the directory `path` (O_TMPFILE, or created exclusively and unlinked),
            ///< mode 0600
};

/// The file system. posix_io() is the real one; tests wrap it to inject errors, short transfers, bit flips
/// and lost writes.
class Io {
 public:
  virtual ~Io() = default;
  /// `direct` requests O_DIRECT; if the file system refuses it, I/O is buffered (see File::direct).
  virtual Result<std::unique_ptr<File>> open(const std::string& path, OpenMode mode, bool direct = false) = 0;
  /// Creates the directory and its parents with the umask's permissions.
  virtual Status make_dirs(const std::string& path) = 0;
  virtual Status rename(const std::string& from, const std::string& to) = 0;
  virtual Status sync_dir(const std::string& path) = 0;
  virtual Status remove_all(const std::string& path) = 0;  ///< a file, or a directory with its contents
  /// Removes a directory. Errors: `io_error` if it is not empty.
  virtual Status remove_empty_dir(const std::string& path);
  virtual Result<std::vector<std::string>> list(const std::string& path) = 0;  ///< names, sorted
  virtual bool exists(const std::string& path) = 0;
  virtual Result<std::uint64_t> free_bytes(const std::string& path) = 0;
};
Io& posix_io() noexcept;

/// Continues short reads until `into` is full. On a direct file it continues from the last aligned offset, so
/// bytes past it are read again. Errors: `corrupt` if the file ends early, naming both sizes; `io_error`,
/// also when many calls in a row make no progress.
Status read_exact(File& file, std::uint64_t offset, std::span<std::byte> into);
/// Continues short writes until all of `from` is written; direct files continue as in read_exact.
Status write_all(File& file, std::uint64_t offset, std::span<const std::byte> from);
/// Returns the contents of a regular file. Errors: `not_found`, `invalid` if it is longer than `limit_bytes`.
Result<std::string> read_text(Io& io, const std::string& path, std::uint64_t limit_bytes);
/// Writes a temporary file beside the target, syncs it, renames it over the target and syncs the directory:
/// readers see either the old or the new contents, complete.
Status write_text_atomically(Io& io, const std::string& path, std::string_view text);

}  // namespace strata
