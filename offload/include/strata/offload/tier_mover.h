#pragma once

#include <vector>

#include <strata/chunk/mover.h>
#include <strata/chunk/placement.h>
#include <strata/runtime/backend/backend.h>

namespace strata {

class ObjectStore;
struct SlotClass;

/// The Mover of a run: copies on the h2d and d2h streams, and reads and writes NVMe through the store.
/// Without a store (planning over the null backend) NVMe requests complete immediately. Called by one thread.
class TierMover final : public Mover {
 public:
  /// All references outlive the mover. The first slot classes of `store` are those of
  /// nvme_slot_classes(); it may be null.
  TierMover(Backend& backend, Stream& h2d, Stream& d2h, const ChunkLayout& layout, const Placement& placement,
            ObjectStore* store);

  Status copy_async(BufferView dst, ConstBufferView src, Direction direction, const Fence& after,
                    Event& done) override;
  Result<IoTicket> write_async(PayloadKey key, ConstBufferView src, bool snapshot) override;
  Result<IoTicket> read_async(PayloadKey key, BufferView dst) override;
  Status wait(IoTicket ticket) override;
  bool wait_for(IoTicket ticket, std::int64_t ns) override;
  void commit(PayloadKey key) override;
  void rollback(PayloadKey key) override;

 private:
  Backend& backend_;
  Stream& h2d_;
  Stream& d2h_;
  const ChunkLayout& layout_;
  const Placement& placement_;
  ObjectStore* store_;
  std::vector<std::uint32_t> store_class_;  // indexed by size class of the placement
};

/// The slot classes an NvmeStore needs for a placement: its size classes that have homes on nvme, in order.
std::vector<SlotClass> nvme_slot_classes(const ChunkLayout& layout, const Placement& placement);

}  // namespace strata
