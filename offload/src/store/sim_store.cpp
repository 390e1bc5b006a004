#include <strata/offload/sim_store.h>

#include <cmath>

namespace strata {
namespace {

IoTicket submit(Simulation& simulation, SimLane lane, std::size_t bytes) {
  return {static_cast<std::uint32_t>(lane), simulation.request(lane, bytes)};
}

}  // namespace

Result<IoTicket> SimStore::write_async(std::uint64_t, std::uint32_t, ConstBufferView src, WriteMode) {
  return submit(simulation_, SimLane::nvme_write, src.bytes);
}
Result<IoTicket> SimStore::read_async(std::uint64_t, BufferView dst) {
  return submit(simulation_, SimLane::nvme_read, dst.bytes);
}

Status SimStore::wait(IoTicket ticket) {
  if (ticket.sequence > 0) simulation_.wait(static_cast<SimLane>(ticket.index), ticket.sequence);
  return {};
}

bool SimStore::wait_for(IoTicket ticket, std::int64_t ns) {
  return ticket.sequence == 0 ||
         simulation_.wait_for(static_cast<SimLane>(ticket.index), ticket.sequence, ns);
}

NvmeCounters SimStore::counters() const {
  NvmeCounters counters;
  counters.bytes_read = simulation_.transferred_bytes(SimLane::nvme_read);
  counters.bytes_written = counters.endurance_bytes = simulation_.transferred_bytes(SimLane::nvme_write);
  counters.read_busy_ns = std::llround(1e9 * simulation_.busy_s(SimLane::nvme_read));
  counters.write_busy_ns = std::llround(1e9 * simulation_.busy_s(SimLane::nvme_write));
  return counters;
}

}  // namespace strata
