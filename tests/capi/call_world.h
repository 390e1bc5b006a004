#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <strata.h>

// The state that the threads of call_sequences.cpp share, and callbacks.
namespace strata::test {

inline constexpr std::int64_t kElems = 300;
inline constexpr std::size_t kParams = 3;

/// A handle and the trainer's memory that is used with it alone, as a session's calls wait for each other.
struct Handle {
  strata_session session = 0;
  bool holds_params = false;
  std::atomic<unsigned> added = 0;
  std::vector<std::vector<float>> params =
      std::vector<std::vector<float>>(kParams, std::vector<float>(kElems));
};

/// The state that all threads use.
struct World {
  std::mutex mutex;
  std::vector<std::shared_ptr<Handle>> handles;
  std::vector<strata_activations> activations = {0, 1, ~strata_activations{0}};
  std::atomic<std::uint64_t> last_activation = 0;
  std::string dir;
  World() {
    for (const strata_session none : {strata_session{0}, strata_session{1}, ~strata_session{0}}) add(none);
  }
  void add(strata_session session, bool holds_params = false) {
    const std::scoped_lock lock(mutex);
    handles.push_back(std::make_shared<Handle>());
    handles.back()->session = session;
    handles.back()->holds_params = holds_params;
  }
};

inline std::int32_t visit(void* context, const strata_piece* piece, const float* values) {
  auto& sum = *static_cast<double*>(context);
  for (std::int64_t i = 0; i < piece->n; ++i) sum += values[i];
  return std::isnan(sum) ? 1 : 0;
}
inline std::int32_t fill(void* context, const strata_piece* piece, float* values) {
  auto& calls = *static_cast<int*>(context);
  for (std::int64_t i = 0; i < piece->n; ++i) values[i] = 0.5f;
  return --calls == 0 ? 1 : 0;
}

inline std::int32_t row(void* context, const strata_ds_row* found) {
  auto& calls = *static_cast<int*>(context);
  const std::size_t length = std::strlen(found->key) + std::strlen(found->value) +
                             std::strlen(found->strata_key) + std::strlen(found->strata_value) +
                             std::strlen(found->reason);
  return length == 0 || --calls == 0 ? 1 : 0;
}

}  // namespace strata::test
