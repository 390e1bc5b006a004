#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io_backend.h"
#include "ring_ops.h"

namespace strata::detail {

/// What the ring's worker must know of a file, to continue short transfers and to name it.
struct RingFile {
  std::string path;
  std::size_t alignment = 1;
};

/// Blocks through a ring that one worker thread owns.
Result<std::unique_ptr<IoBackend>> make_ring_io_backend(std::unique_ptr<RingOps> ring,
                                                        std::vector<RingFile> files, TransferSink& sink,
                                                        std::uint32_t table_size, std::size_t block_bytes);

}  // namespace strata::detail
