#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <strata/chunk/layout.h>
#include <strata/graph/passes.h>
#include <strata/graph/program.h>
#include <strata/offload/access_trace.h>

namespace strata {

/// Where an operand's bytes are: at a fixed offset in the arena, in the states or in the activations on the
/// host; or at an offset in a chunk's payload, whose address each pin provides anew.
struct Operand {
  enum class Location : std::uint8_t { none, arena, param, grad, state, host };
  Location location = Location::none;
  std::size_t offset = 0;  ///< bytes, from the start of `location`'s memory
  ChunkId chunk = 0;
  Shape shape;
  DType dtype = DType::f32;
};

/// A gradient chunk that an instruction writes.
struct GradWrite {
  ChunkId chunk = 0;
  bool first = false;  ///< first write of the micro-batch: the chunk's gradient gets a slot
  bool last = false;   ///< last write: the chunk's gradient is complete and is accumulated
};

struct LoweredInstr {
  Op op = Op::add;
  Attrs attrs;
  std::uint32_t accumulate = 0;
  std::vector<Operand> in, out;
  std::vector<ChunkId> params;  ///< chunks of the parameters that it reads, each once
  std::vector<GradWrite> grads;
  double flops = 0;
};

/// A Program bound to a layout, as the executor replays it. All offsets are static.
struct LoweredProgram {
  std::vector<LoweredInstr> code;
  struct Binding {
    std::string name;
    std::int32_t micro_batch = 0;
    bool is_input = false;
    Operand operand;
  };
  std::vector<Binding> bindings;   ///< inputs and outputs
  std::int32_t micro_batches = 1;  ///< processed by one run
  std::size_t arena_bytes = 0;
  std::size_t state_bytes = 0;  ///< of its states, in order; equal states have equal offsets
  /// Activations that are offloaded while nothing reads them (offload_activations).
  struct Offload {
    std::int32_t n = 0;
    std::uint64_t bytes = 0;     ///< moved out, and back, in one run of the program
    std::size_t host_bytes = 0;  ///< peak on the host
    /// An activation that moves on to the slow tier.
    struct Stored {
      std::int32_t move = 0;
      std::size_t slot_bytes = 0;  ///< in whole pages
      std::string name;
    };
    std::vector<Stored> stored = {};
  } offload;

  /// Returns the input or output of that name and micro-batch; its `location` is none if there is none.
  Operand find(std::string_view name, std::int32_t micro_batch = 0) const;

  /// Flops of forward and of backward, which begins with the first instruction that writes a gradient.
  struct PassFlops {
    double forward = 0, backward = 0;
    double all() const noexcept { return forward + backward; }
  };
  PassFlops pass_flops() const noexcept;
};

/// The tensors of a program in order of first use, in which the layout packs them, and the mapping to
/// parameters.
struct TensorTable {
  std::vector<LayoutTensor> specs;
  std::vector<std::int32_t> tensor_of_param;  ///< index into specs, by index into Program::params
  std::vector<std::int32_t> param_of_tensor;
};
TensorTable tensors_in_use_order(const Program& program);

/// Lowers a program. `memory` is plan_memory(program) if it is known, or null. Errors: `invalid` if the
/// program's parameters are not those of the table.
Result<LoweredProgram> lower(const Program& program, const TensorTable& tensors, const ChunkLayout& layout,
                             const MemoryPlan* memory = nullptr);

/// Returns the planner's view of a lowered program that runs `passes` times a step.
AccessTrace access_trace(const LoweredProgram& program, std::int32_t passes);

}  // namespace strata
