#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <strata/offload/nvme_store.h>
#include <strata/runtime/io.h>

#include "io_backend.h"
#include "ring_ops.h"

namespace strata::detail {

/// Addresses, offsets and sizes are multiples of it, which direct I/O on a usual disk asks for.
inline constexpr std::size_t kStoreAlign = 4096;

using RingFactory =
    std::function<Result<std::unique_ptr<RingOps>>(std::span<const int> descriptors, std::uint32_t depth)>;

/// The store's files, one a dir, and why something is not as it was asked for.
struct StoreFiles {
  std::vector<std::unique_ptr<File>> opened;
  std::uint64_t n_opened = 0;  // those that were opened in vain included
  std::string note;            // " (reason)", or nothing
};

Result<StoreFiles> open_store_files(Io& io, const NvmeOptions& options);

/// The engine that the options ask for or fall back to, which files.note then tells. The files outlive it.
Result<std::unique_ptr<IoBackend>> make_io_backend(const NvmeOptions& options, StoreFiles& files,
                                                   const RingFactory& make_ring, TransferSink& sink,
                                                   std::uint32_t table_size);

/// Bytes per second of each dir, in both directions in turn, for blocks of the options' size and depth:
/// measured on up to 32 MiB of files that then go. Errors: `no_space`; `io_error` and `timeout` naming the
/// dir.
Result<std::vector<double>> probe_rates(Io& io, const NvmeOptions& options, const RingFactory& make_ring);

}  // namespace strata::detail
