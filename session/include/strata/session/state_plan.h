#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <strata/chunk/layout.h>
#include <strata/chunk/placement.h>
#include <strata/offload/access_trace.h>
#include <strata/runtime/tensor_part.h>
#include <strata/runtime/tensor_view.h>
#include <strata/session/session_options.h>

namespace strata {

/// The tensors of a run in order of first use, in which the layout packs them. Their registration order is
/// the order in which the model declares its parameters: norm partials and random numbers are numbered by it,
/// so that layouts change no bit.
struct TensorTable {
  std::vector<LayoutTensor> specs;
  std::vector<Shape> shapes;  ///< indexed like specs
  std::vector<bool> decays;   ///< whether weight decay applies; indexed like specs
  /// Indexed like specs: the parameters that the tensor represents, which are more than its elements if it is
  /// quantized. Empty: one an element.
  std::vector<std::int64_t> params;
  /// Indexed like specs: the elements of the model's tensor of which it consists. Empty: ranks do not share
  /// tensors of the model.
  std::vector<TensorPart> parts;
  std::vector<std::int32_t> tensor_of_param;  ///< index into specs, by registration order
  std::vector<std::int32_t> param_of_tensor;  ///< the inverse

  /// The shape of the model's tensor.
  const Shape& whole_shape(std::size_t tensor) const {
    return parts.empty() ? shapes[tensor] : parts[tensor].whole;
  }
};

/// The settings in which the updates of tensors differ.
struct UpdateRule {
  double lr_scale = 1, weight_decay = 0;
  friend bool operator==(const UpdateRule&, const UpdateRule&) = default;
};

/// The chunks whose update does not wait for the norm, and where their previous states are kept until the
/// norm is known. States that live in RAM are copied to the log, one payload after the other; of states on
/// nvme the previous generation is kept, in the extents counted by SizeClass::snapshots.
struct UndoLog {
  std::size_t bytes = 0;
  std::vector<std::optional<std::size_t>> offset_of_chunk;  ///< in the log; not set: waits for the norm

  bool covers_any() const {
    return std::any_of(offset_of_chunk.begin(), offset_of_chunk.end(),
                       [](const auto& at) { return at.has_value(); });
  }
  bool covers(ChunkId chunk) const { return chunk < offset_of_chunk.size() && offset_of_chunk[chunk]; }
};

/// Memory that the driver of a session needs in addition to the states: activations, inputs, losses and the
/// like. It is part of the plan's slabs and of its budgets. Sizes are in bytes.
struct DriverMemory {
  std::size_t arena = 0;          ///< on the device, a multiple of a page
  std::size_t device_states = 0;  ///< on the device, outlives passes: keys and values; a multiple of a page
  std::size_t pinned = 0;         ///< a multiple of a page
  std::vector<SlotClass> nvme_slots;  ///< slots of the store for objects that are not chunks
  std::size_t nvme_bytes() const noexcept {
    std::size_t bytes = 0;
    for (const SlotClass& slots : nvme_slots) bytes += slots.slot_bytes * slots.slots;
    return bytes;
  }
};

/// Everything that the states of a run will hold, and where. It knows no Program.
struct StatePlan {
  TensorTable tensors;
  std::vector<UpdateRule> rules;  ///< the distinct rules
  std::vector<std::int32_t> rule_of_tensor;
  ChunkLayout layout;
  AccessTrace trace;
  Placement placement;
  UndoLog undo;
  SessionOptions options;
  DriverMemory driver;
  TierBytes planned_peak{};          ///< peak of used + reserved bytes, by tier
  std::vector<std::string> notes;    ///< say what was chosen and why, one sentence each
  std::vector<Payload> held_states;  ///< the states in kCheckpointPayloads that the run has

  bool trains() const noexcept { return trace.training; }
  std::int32_t n_trainees() const noexcept {
    return std::max<std::int32_t>(1, static_cast<std::int32_t>(options.trainees.size()));
  }
  /// Micro-batches of a step of a trainee, and its maximum gradient norm.
  std::int32_t micro_batches(std::int32_t trainee) const noexcept {
    const auto t = static_cast<std::size_t>(trainee);
    const std::int32_t own = t < options.trainees.size() ? options.trainees[t].micro_batches : 0;
    return own > 0 ? own : options.grad_accum;
  }
  double clip(std::int32_t trainee) const noexcept {
    const auto t = static_cast<std::size_t>(trainee);
    return t < options.trainees.size() ? options.trainees[t].clip.value_or(options.clip) : options.clip;
  }
  /// Number of passes per step: one per micro-batch, or a single one for all of them.
  std::int32_t passes() const noexcept { return trace.micro_batches; }
  /// Number of parameters that are trained, or that are frozen.
  std::int64_t n_params(bool trainable) const noexcept {
    std::int64_t n = 0;
    for (std::size_t t = 0; t < tensors.specs.size(); ++t)
      if (tensors.specs[t].group.trainable == trainable)
        n += tensors.params.empty() ? tensors.specs[t].n_elems : tensors.params[t];
    return n;
  }
  /// Whether gradients are stored in f16, so that small ones would underflow without a loss scale.
  bool scales_loss() const noexcept {
    return trains() && layout.groups().front().compute == DType::f16;  // one dtype for all parameters
  }
  /// The payloads held between steps; for a run that only infers, parameters alone.
  std::span<const Payload> states() const noexcept {
    return std::span(held_states).first(trains() ? held_states.size() : 1);
  }
  /// Whether the parameters are in the memory of a trainer.
  bool of_trainer() const noexcept { return layout.groups().front().of_trainer; }
  /// Whether tensor `index` of the layout has a state of `payload`; frozen ones have parameters alone.
  bool holds(std::int32_t tensor, Payload payload) const {
    return payload == Payload::param || tensors.specs[static_cast<std::size_t>(tensor)].group.trainable;
  }
};

/// The store of a run has the slot classes of the chunks and then those of DriverMemory::nvme_slots, of which
/// this is the first.
std::uint32_t first_driver_class(const StatePlan& plan);
/// The first id for the driver's own objects in the store: those before it belong to the chunks' payloads.
std::uint64_t first_driver_object(const StatePlan& plan) noexcept;

}  // namespace strata
