#pragma once

namespace strata {

/// Names what the calling thread does from here to the end of the scope, for profilers that read NVTX ranges
/// (Nsight Systems). Costs a load where none is attached, and nothing in a build without CUDA. `label` is
/// kept until the scope ends. Ranges of one thread nest.
class ProfilerRange {
 public:
  explicit ProfilerRange(const char* label) noexcept;
  ~ProfilerRange();
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
};

}  // namespace strata
