#pragma once

#include <memory>
#include <string>

#include <strata/runtime/io.h>

namespace strata::cli {

/// A folder that one process at a time uses. The lock is a file in it, `.lock`, so that it goes wherever the
/// folder goes, and ends with the process however that ends. One thread.
class FolderLock {
 public:
  /// Makes the folder where there is none. Errors: `invalid` where another process uses it; `io_error`.
  static Result<std::unique_ptr<FolderLock>> acquire(Io& io, const std::string& path);

  const std::string& path() const noexcept { return path_; }
  /// Where the folder is now, absolute. Errors: `io_error` where it was removed.
  Result<std::string> place() const;
  /// Errors: `io_error` where the folder was removed or renamed since it was locked, with its new name.
  Status check_not_moved() const;
  /// Takes back what was made to lock: of a command that was refused before it began.
  void undo_creation() noexcept;

 private:
  FolderLock(Io& io, std::string path) : io_(io), path_(std::move(path)) {}
  Result<bool> try_acquire();

  Io& io_;
  const std::string path_;
  bool made_folder_ = false, made_lock_ = false;
  std::unique_ptr<File> lock_;
  std::string place_;  // of the lock when it was taken
};

}  // namespace strata::cli
