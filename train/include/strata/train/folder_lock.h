#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <strata/runtime/io/io.h>

namespace strata {

/// Locks a folder so that only one process at a time uses it. The lock is held on a file in the folder,
/// `.lock`, so it moves with the folder and is released when the process ends, however it ends. Not
/// thread-safe.
class FolderLock {
 public:
  /// Creates the folder, for its owner alone, if it does not exist. Errors: `invalid` if another process
  /// holds the lock; `io_error`.
  static Result<std::unique_ptr<FolderLock>> acquire(Io& io, const std::string& path);

  /// Removes the lock file and the folder if acquire() created them, unless keep() was called: a command that
  /// is refused before it writes, or that writes nothing, leaves a folder as it was.
  ~FolderLock();
  void keep() noexcept { keeps_ = true; }
  /// Writes `text` into the lock file if it is empty. Errors: those of writing.
  Status mark(std::string_view text);

  const std::string& path() const noexcept { return path_; }
  /// The absolute path of the folder now. Errors: `io_error` if it was removed.
  Result<std::string> place() const;
  /// Errors: `io_error` if the folder was removed, or was renamed since it was locked, with its new name.
  Status check_not_moved() const;

 private:
  FolderLock(Io& io, std::string path) : io_(io), path_(std::move(path)) {}
  Result<bool> try_acquire();

  Io& io_;
  const std::string path_;
  bool made_folder_ = false, made_lock_ = false, keeps_ = false;
  std::unique_ptr<File> lock_;
  std::string place_;  // path of the lock file when it was locked
};

}  // namespace strata
