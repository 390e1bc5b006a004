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

/// Where an operand's bytes are: fixed at an offset in the arena, among the states or among the activations
/// on the host, or at an offset in a chunk's payload, whose address the pin gives each time.
struct Operand {
  enum class Location : std::uint8_t { none, arena, param, grad, state, host };
  Location location = Location::none;
  std::size_t offset = 0;  ///< bytes, in the arena, the states, the host's part or the payload
  ChunkId chunk = 0;
  Shape shape;
  DType dtype = DType::f32;
};

/// A gradient chunk that an instruction writes.
struct GradWrite {
  ChunkId chunk = 0;
  bool first = false;  ///< of the micro-batch: a slot is taken
  bool last = false;   ///< the chunk's gradient is complete: it lands
};

struct LoweredInstr {
  Op op = Op::add;
  Attrs attrs;
  std::uint32_t accumulate = 0;
  std::vector<Operand> in, out;
  std::vector<ChunkId> params;  ///< parameter chunks it reads, each once
  std::vector<GradWrite> grads;
  double flops = 0;
};

/// A Program bound to a layout: what the executor replays. All offsets are static.
struct LoweredProgram {
  std::vector<LoweredInstr> code;
  struct Binding {
    std::string name;
    std::int32_t micro_batch = 0;
    bool is_input = false;
    Operand operand;
  };
  std::vector<Binding> bindings;   ///< inputs and outputs
  std::int32_t micro_batches = 1;  ///< of one run of it
  std::size_t arena_bytes = 0;
  std::size_t state_bytes = 0;  ///< of its states, in their order: those of programs with equal ones agree
  /// Activations that are away while nothing reads them (offload_activations).
  struct Offload {
    std::int32_t n = 0;
    std::uint64_t bytes = 0;     ///< that leave in a run of the program, and come back
    std::size_t host_bytes = 0;  ///< that they take on the host
    /// One that goes on to the slow tier.
    struct Stored {
      std::int32_t move = 0;
      std::size_t slot_bytes = 0;  ///< whole pages
      std::string name;
    };
    std::vector<Stored> stored = {};
  } offload;

  /// The input or output of that name and micro-batch; `location` is none when there is none.
  Operand find(std::string_view name, std::int32_t micro_batch = 0) const;

  /// Of forward and of backward, which begins with the first instruction that makes a gradient.
  struct PassFlops {
    double forward = 0, backward = 0;
    double all() const noexcept { return forward + backward; }
  };
  PassFlops pass_flops() const noexcept;
};

/// The tensors of a program in order of first use, as the layout takes them, and back.
struct TensorTable {
  std::vector<LayoutTensor> specs;
  std::vector<std::int32_t> tensor_of_param;  ///< index into specs, by index into Program::params
  std::vector<std::int32_t> param_of_tensor;
};
TensorTable tensors_in_use_order(const Program& program);

/// `memory`: plan_memory(program), where it is known. Errors: `invalid` when the program has parameters that
/// the table lacks.
Result<LoweredProgram> lower(const Program& program, const TensorTable& tensors, const ChunkLayout& layout,
                             const MemoryPlan* memory = nullptr);

/// The planner's view of a lowered program, run `passes` times a step.
AccessTrace access_trace(const LoweredProgram& program, std::int32_t passes);

}  // namespace strata
