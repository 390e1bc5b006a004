#pragma once

namespace strata {

/// An NVTX range from construction to the end of the scope, for profilers such as Nsight Systems. Costs one
/// load if no profiler is attached, and nothing in a build without CUDA. `label` must stay valid until the
/// scope ends. Ranges of one thread may be nested.
class ProfilerRange {
 public:
  explicit ProfilerRange(const char* label) noexcept;
  ~ProfilerRange();
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
};

}  // namespace strata
