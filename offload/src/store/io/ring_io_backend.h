#pragma once

#include <memory>
#include <string>
#include <vector>

#include "store/io/io_backend.h"
#include "store/io/ring_ops.h"

namespace strata::detail {

/// Alignment and path of a file, to continue short transfers and to name the file in errors.
struct RingFile {
  std::string path;
  std::size_t alignment = 1;
};

/// Moves blocks through a ring that one worker thread owns.
Result<std::unique_ptr<IoBackend>> make_ring_io_backend(std::unique_ptr<RingOps> ring,
                                                        std::vector<RingFile> files, TransferSink& sink,
                                                        std::uint32_t table_size, std::size_t block_bytes);

}  // namespace strata::detail
