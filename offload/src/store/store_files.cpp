// Opens the store's files and creates the IoBackend on them.
#include "store/store_files.h"

#include <algorithm>
#include <utility>

#include <strata/runtime/str.h>

#include "store/io/ring_io_backend.h"

namespace strata::detail {

Result<StoreFiles> open_store_files(Io& io, const NvmeOptions& options) {
  StoreFiles files;
  for (const std::string& dir : options.dirs) {
    STRATA_TRY(io.make_dirs(dir));
    STRATA_TRY_ASSIGN(std::unique_ptr<File> file, io.open(dir, OpenMode::scratch, options.direct));
    ++files.n_opened;
    const DirectAlignment needs = file->alignment();
    if (file->direct() && (needs.offset > kStoreAlign || needs.memory > kStoreAlign)) {
      files.note += str(" (", dir, " requires ", std::max(needs.offset, needs.memory), "-byte alignment)");
      STRATA_TRY_ASSIGN(file, io.open(dir, OpenMode::scratch, false));
      ++files.n_opened;
    }
    files.opened.push_back(std::move(file));
  }
  return files;
}

Result<std::unique_ptr<IoBackend>> make_io_backend(const NvmeOptions& options, StoreFiles& files,
                                                   const RingFactory& make_ring, TransferSink& sink,
                                                   std::uint32_t table_size) {
  std::vector<int> descriptors;
  std::vector<RingFile> ring_files;
  std::vector<File*> plain_files;
  for (const std::unique_ptr<File>& file : files.opened) {
    descriptors.push_back(file->descriptor());
    ring_files.push_back({file->path(), file->direct() ? kStoreAlign : 1});
    plain_files.push_back(file.get());
  }
  if (options.engine != IoEngine::threads) {
    const bool bare = std::find(descriptors.begin(), descriptors.end(), -1) == descriptors.end();
    const auto depth = 2 * static_cast<std::uint32_t>(options.queue_depth * descriptors.size());
    auto ring = bare ? make_ring(descriptors, depth)
                     : Status::error(Code::unsupported, "io_uring: the files have no descriptors");
    if (ring.has_value())
      return make_ring_io_backend(std::move(*ring), std::move(ring_files), sink, table_size,
                                  options.block_bytes);
    if (options.engine == IoEngine::uring) return ring.status();
    files.note += str(" (", ring.status().message(), ")");
  }
  return make_thread_io_backend(std::move(plain_files), sink, table_size, options.block_bytes,
                                options.io_threads);
}

}  // namespace strata::detail
