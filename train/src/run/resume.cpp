#include <strata/train/resume.h>

#include <filesystem>

#include <strata/config/run_layout.h>
#include <strata/runtime/str.h>

namespace strata {

Result<std::unique_ptr<FolderLock>> lock_checkpoint_dir(const std::string& dir, const std::string& path,
                                                        Io& io) {
  if (dir.empty()) return std::unique_ptr<FolderLock>();
  const std::filesystem::path absolute =
      std::filesystem::absolute(dir + "/").lexically_normal().parent_path();
  const std::string parent = absolute.parent_path().string();
  if (parent != std::filesystem::absolute(path + "/").lexically_normal().parent_path() &&
      is_run_folder(io, parent))
    return Status::error(Code::invalid, str("checkpoint.dir = ", dir, " is in the folder of another run, ",
                                            parent, "; name a separate folder"));
  auto lock = FolderLock::acquire(io, dir);
  if (!lock.has_value()) return lock.status().annotate("checkpoint.dir");
  return *std::move(lock);
}

}  // namespace strata
