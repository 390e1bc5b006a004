#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include <strata/runtime/status.h>

namespace strata {

/// One input of a micro-batch to be filled.
struct BatchInput {
  std::string_view name;
  std::span<std::int32_t> values;  ///< if the input is f32, the values' bits
};

/// The inputs of one micro-batch, by name.
struct BatchView {
  std::span<const BatchInput> inputs;

  /// The values of the input `name`; none if the program has no such input. Decoders have "tokens" and
  /// "targets" (below 0: not counted), of the same size, and those for packed documents "doc_start": for each
  /// token, where in its row its document begins.
  std::span<std::int32_t> operator[](std::string_view name) const noexcept {
    for (const BatchInput& input : inputs)
      if (input.name == name) return input.values;
    return {};
  }
  /// The same of an input in f32.
  std::span<float> floats(std::string_view name) const noexcept {
    const std::span<std::int32_t> bits = (*this)[name];
    return {reinterpret_cast<float*>(bits.data()), bits.size()};
  }
};

/// Provides micro-batches. `index` counts them from the beginning of the run, so that a source can be a pure
/// function of it.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  virtual Status fill(std::int64_t index, const BatchView& batch) = 0;
  /// Returns how many targets of micro-batches [index, index + n) are counted. A step's loss is the mean over
  /// all of them, so a micro-batch weighs as much as it has counted targets.
  virtual std::int64_t n_counted(std::int64_t index, std::int64_t n) = 0;
  /// How many of micro-batches [index, index + n), from the first one on and fewer than n, count no target,
  /// so that a step need not compute them.
  virtual std::int64_t n_empty(std::int64_t /*index*/, std::int64_t /*n*/) { return 0; }
};

/// One token of a sequence to be continued.
struct SequenceToken {
  std::int32_t token = 0;
  std::int32_t position = 0;  ///< absolute position in the sequence
  std::int32_t slot = 0;      ///< the sequence's slot in the cache
  std::int32_t adapter = -1;  ///< number of the sequence's adapter (add_lora_rows); -1: none
};

}  // namespace strata
