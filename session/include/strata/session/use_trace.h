#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <strata/chunk/types.h>
#include <strata/offload/access_trace.h>

namespace strata {

/// A position in the step and a chunk. Position p of pass k is k * (positions of a pass) + p.
using ChunkPosition = std::pair<std::int32_t, ChunkId>;

/// A gradient chunk that is written, or read, at a position.
struct GradWrite {
  ChunkId chunk = 0;
  bool first = false;  ///< first write of the micro-batch: the chunk's gradient gets a slot
  bool last = false;   ///< last use: the chunk's gradient is complete and is accumulated
};

/// The uses of chunks in one pass of a step, position by position: all that a session knows of the
/// computation. Lowering a Program creates one, with a position for each instruction.
struct UseTrace {
  struct Position {
    std::vector<ChunkId> params;   ///< chunks whose parameters are read on the device, each once
    std::vector<GradWrite> grads;  ///< chunks whose gradients are written or read, each once
    double flops = 0;
    std::uint64_t sent_bytes = 0;    ///< to other ranks that share a copy of the model
    std::uint64_t summed_bytes = 0;  ///< gradients sent to ranks of other copies (GradientReduce::in_program)
  };
  std::vector<Position> positions;

  /// Flops of forward and of backward, which begins with the first position that writes a gradient.
  struct PassFlops {
    double forward = 0, backward = 0;
    double all() const noexcept { return forward + backward; }
  };
  PassFlops pass_flops() const noexcept;
  /// Sets GradWrite::first and GradWrite::last.
  void mark_first_and_last_writes();
};

}  // namespace strata
