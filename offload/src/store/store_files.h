#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <strata/offload/nvme_options.h>
#include <strata/runtime/io/io.h>

#include "store/io/io_backend.h"
#include "store/io/ring_ops.h"

namespace strata::detail {

/// Addresses, offsets and sizes are multiples of this, as direct I/O on common disks requires.
inline constexpr std::size_t kStoreAlign = 4096;

using RingFactory =
    std::function<Result<std::unique_ptr<RingOps>>(std::span<const int> descriptors, std::uint32_t depth)>;

/// The store's files, one per dir, and the reason of a fallback.
struct StoreFiles {
  std::vector<std::unique_ptr<File>> opened;
  std::uint64_t n_opened = 0;  // includes files that were closed and opened again without O_DIRECT
  std::string note;            // " (reason)", or empty
};

Result<StoreFiles> open_store_files(Io& io, const NvmeOptions& options);

/// Creates the IoBackend of the options, or the fallback, whose reason is appended to files.note. The files
/// outlive it.
Result<std::unique_ptr<IoBackend>> make_io_backend(const NvmeOptions& options, StoreFiles& files,
                                                   const RingFactory& make_ring, TransferSink& sink,
                                                   std::uint32_t table_size);

/// Measures the bytes per second of each dir, writing and then reading, with the options' block size and
/// depth, on temporary files of up to 32 MiB. Errors: `no_space`; `io_error` and `timeout` with the dir.
Result<std::vector<double>> probe_rates(Io& io, const NvmeOptions& options, const RingFactory& make_ring);

}  // namespace strata::detail
