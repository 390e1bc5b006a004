#include <strata/train/folder_lock.h>

#include <filesystem>
#include <span>

#include <strata/runtime/str.h>

namespace strata {
namespace {

constexpr const char* kLock = "/.lock";
constexpr int kTries = 100;

std::string folder_of(const std::string& file) { return file.substr(0, file.rfind('/')); }

}  // namespace

Result<std::unique_ptr<FolderLock>> FolderLock::acquire(Io& io, const std::string& path) {
  std::unique_ptr<FolderLock> lock(new FolderLock(io, path));
  for (int i = 0; i < kTries; ++i) {
    STRATA_TRY_ASSIGN(const bool taken, lock->try_acquire());
    if (taken) return lock;
  }
  return Status::error(Code::io_error, str(path, ": its lock file was removed ", kTries, " times in a row"));
}

// Returns false if another process removed the folder or the lock file in between (undo_creation()): a lock
// on a removed file excludes nobody.
Result<bool> FolderLock::try_acquire() {
  const std::string file = path_ + kLock;
  made_folder_ = !io_.exists(path_);
  STRATA_TRY(io_.make_dirs(path_));
  std::error_code ignored;  // some file systems have no permissions
  if (made_folder_) std::filesystem::permissions(path_, std::filesystem::perms::owner_all, ignored);
  made_lock_ = !io_.exists(file);
  auto opened = io_.open(file, OpenMode::append);
  if (!opened.has_value() && opened.status().code() == Code::not_found) return false;
  if (!opened.has_value()) return opened.status();
  lock_ = *std::move(opened);
  if (const Status locked = lock_->lock(); !locked.is_ok())
    return locked.code() == Code::invalid
               ? Status::error(Code::invalid, str(path_, " is in use by another run; end that run first"))
               : locked;
  auto place = lock_->current_path();
  if (!place.has_value() && place.status().code() == Code::not_found) return false;
  if (!place.has_value()) return place.status();
  place_ = *std::move(place);
  return true;
}

Result<std::string> FolderLock::place() const {
  const auto place = lock_->current_path();
  if (!place.has_value())
    return Status::error(Code::io_error, str(path_, " was removed while the run was using it"));
  return folder_of(*place);
}

Status FolderLock::check_not_moved() const {
  STRATA_TRY_ASSIGN(const std::string now, place());
  if (now == folder_of(place_)) return {};
  return Status::error(Code::io_error, str(path_, " was renamed to ", now, " while the run was using it"));
}

Status FolderLock::mark(std::string_view text) {
  STRATA_TRY_ASSIGN(const std::uint64_t size, lock_->size());
  return size > 0 ? Status::ok() : write_all(*lock_, 0, std::as_bytes(std::span(text)));
}

FolderLock::~FolderLock() {
  if (keeps_ || place_.empty() || !check_not_moved().is_ok()) return;
  if (made_lock_) (void)io_.remove_all(path_ + kLock);  // while locked: processes waiting for it try again
  if (made_folder_) (void)io_.remove_empty_dir(path_);
}

}  // namespace strata
