#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <strata/chunk/layout.h>
#include <strata/engine/program_set.h>
#include <strata/graph/passes.h>
#include <strata/graph/program.h>
#include <strata/session/state_plan.h>
#include <strata/session/use_trace.h>

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

  std::size_t bytes() const noexcept {
    return location == Location::none ? 0 : static_cast<std::size_t>(shape.n_elems()) * size_of(dtype);
  }
};

/// An instruction whose operands are offsets into memory instead of values.
struct LoweredInstr {
  Op op = {};
  Attrs attrs;
  std::uint32_t accumulate = 0;  ///< bit k: output k is added to
  std::vector<Operand> in, out;
};

/// A Program bound to a layout, as the executor replays it. All offsets are static.
struct LoweredProgram {
  std::vector<LoweredInstr> code;
  UseTrace uses;  ///< the uses of chunks by each instruction of `code`, at the same index
  struct Binding {
    std::string name;
    std::int32_t micro_batch = 0;
    bool is_input = false;
    Operand operand;
    /// For an input, the offset of its bytes in the memory that is uploaded; for an output other than "loss"
    /// and "logits", in the memory that it is read back to.
    std::size_t slot_offset = 0;
  };
  std::vector<Binding> bindings;  ///< inputs and outputs
  /// A value that is read once its instruction has run (Program::results).
  struct ResultValue {
    std::string name;
    std::size_t instr = 0;  ///< index into `code`
    Operand operand;
    std::size_t host_offset = 0;  ///< where it is kept on the host, in bytes
  };
  std::vector<ResultValue> results;  ///< in the order of their instructions
  std::size_t result_bytes = 0;      ///< on the host, of all of them
  std::int32_t micro_batches = 1;    ///< processed by one run
  std::size_t input_bytes = 0;       ///< the bytes of all inputs, which are uploaded one after the other
  std::size_t output_bytes = 0;      ///< the bytes of all outputs other than "loss" and "logits"
  std::size_t arena_bytes = 0;
  std::size_t state_bytes = 0;  ///< the bytes of its states, in order; equal states have equal offsets
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

  bool empty() const noexcept { return code.empty(); }
  /// Returns the input or output of that name and micro-batch; its `location` is none if there is none.
  Operand find(std::string_view name, std::int32_t micro_batch = 0) const;
};

/// The parameters of all programs, one for each name, with their settings in the first program that has them.
/// The programs are in order of importance: the first one determines the order of use and of registration,
/// and if it is one that trains, parameters that none of them trains are frozen. Errors: `invalid`, naming a
/// parameter whose shapes or dtypes differ.
struct ParameterUnion {
  TensorTable tensors;
  std::vector<Init> inits;                          ///< indexed like the table's specs
  std::vector<kernels::QuantizedMatrix> quantized;  ///< the same; of format `full` if it is not quantized
};
Result<ParameterUnion> unite_parameters(std::span<const NamedProgram* const> programs);

/// Lowers a program whose parameters are all in the table. `memory` is plan_memory(program) if it is known,
/// or null.
LoweredProgram lower(const Program& program, const TensorTable& tensors, const ChunkLayout& layout,
                     const MemoryPlan* memory = nullptr);

}  // namespace strata
