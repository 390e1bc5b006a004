#pragma once

#include <strata/offload/object_store.h>
#include <strata/runtime/backend/simulation.h>

namespace strata {

/// The NVMe tier of a simulated machine: stores nothing and only simulates request times. Used by one
/// thread.
class SimStore final : public ObjectStore {
 public:
  explicit SimStore(Simulation& simulation) : simulation_(simulation) {}

  Result<IoTicket> write_async(std::uint64_t id, std::uint32_t slot_class, ConstBufferView src,
                               WriteMode mode) override;
  Result<IoTicket> read_async(std::uint64_t id, BufferView dst) override;
  Status wait(IoTicket ticket) override;
  bool wait_for(IoTicket ticket, std::int64_t ns) override;
  void discard(std::uint64_t) override {}
  void commit(std::uint64_t) override {}
  void rollback(std::uint64_t) override {}
  bool drain() noexcept override { return true; }
  NvmeCounters counters() const override;
  std::vector<NvmePath> paths() const override { return {}; }
  std::string io_description() const override { return "simulated"; }

 private:
  Simulation& simulation_;
};

}  // namespace strata
