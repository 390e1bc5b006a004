#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <strata/offload/nvme_store.h>

#include "fake_ring.h"
#include "store/file_store.h"
#include "support/aligned_buffer.h"
#include "support/fault_io.h"
#include "support/temp_dir.h"

namespace strata::test {

/// The I/O backends that a parameterized suite tests.
enum class TestIoBackend { uring, threads, fake_ring };
std::string name_of(TestIoBackend engine);

/// A temporary directory and the faults of the stores created in it. All I/O passes through FaultIo, except
/// on the real io_uring, which works on descriptors.
class StoreFixture {
 public:
  explicit StoreFixture(TestIoBackend engine, std::uint64_t seed = 1);
  /// `classes` and `dirs` default to one class of eight 256 KiB slots in dir(); blocks are small, so that
  /// ordinary requests are split.
  Result<StorePtr<NvmeStore>> try_make(NvmeOptions options = {});
  StorePtr<NvmeStore> make(NvmeOptions options = {}) { return must(try_make(std::move(options))); }

  FaultIo& faults() { return faults_; }
  RingFaults& ring() { return ring_; }
  const RingStats& stats() const { return *stats_; }
  const std::string& dir() const { return dir_.path(); }

 private:
  const TestIoBackend io_backend_;
  TempDir dir_;
  std::unique_ptr<Io> descriptors_;  // wrapped by faults_ on the fake ring
  FaultIo faults_;
  RingFaults ring_;
  std::shared_ptr<RingStats> stats_ = std::make_shared<RingStats>();
};

inline constexpr std::size_t kSlotBytes = 256 * kKiB;

/// Submits a request and waits for it.
Status write_and_wait(NvmeStore& store, std::uint64_t id, const AlignedBuffer& from,
                      std::uint32_t slot_class = 0);
Status read_and_wait(NvmeStore& store, std::uint64_t id, const AlignedBuffer& into);

inline bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

/// Whether the kernel accepts io_uring; if not, `why` is the reason with which callers skip their test.
bool uring_works(std::string* why);

}  // namespace strata::test
