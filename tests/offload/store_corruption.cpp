// Damages what a store keeps, as often as it is told to, and counts what became of it:
//   store_corruption FOLDER SEED FLIPS OTHERS
// FLIPS bits are flipped, half of them on the way to the file and half on the way back; OTHERS writes each
// are lost, misdirected and torn. Everything is a function of the arguments, the order of the faults
// included; `log` is a digest of it. Prints one line of JSON. Exit code: 1 when damaged bytes were given out
// as good, or a fault was not noticed.
#include <charconv>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include <strata/offload/nvme_store.h>
#include <strata/runtime/digest.h>
#include <strata/runtime/str.h>

#include "support/aligned_buffer.h"
#include "support/fault_io.h"

namespace strata::test {
namespace {

constexpr std::uint32_t kIds = 64;
constexpr std::uint64_t kFaultsOfAStore = 2'000;  // a store and its faults remember every failure
constexpr std::size_t kSizes[] = {4 * kKiB, 4 * kKiB, 8 * kKiB, 4 * kKiB, 16 * kKiB, 4 * kKiB, 64 * kKiB};

struct Kind {
  const char* name;
  IoCall call;
  FaultKind fault;
};
constexpr Kind kKinds[] = {{"flipped_in_file", IoCall::write, FaultKind::flip},
                           {"flipped_in_read", IoCall::read, FaultKind::flip},
                           {"lost", IoCall::write, FaultKind::lose},
                           {"misdirected", IoCall::write, FaultKind::misdirect},
                           {"torn", IoCall::write, FaultKind::tear}};

struct Tally {
  std::uint64_t faults = 0;      // that changed bytes
  std::uint64_t detected = 0;    // of these: the read that met them was refused
  std::uint64_t collateral = 0;  // refused reads of ids whose own write was sound: a misdirected one hit them
  std::uint64_t harmless = 0;    // a write torn into all of its sectors, which is whole
  std::uint64_t used = 0;        // given out as good, and other bytes than were written
};

void fill(const AlignedBuffer& buffer, std::uint64_t seed) {
  for (std::size_t at = 0; at < buffer.view().bytes; at += 8) {  // splitmix64
    std::uint64_t z = seed += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    std::memcpy(buffer.view().data + at, &z, 8);
  }
}

// Three of four ids of a round meet the fault; the fourth is sound but for what others do to it.
constexpr bool is_victim(std::uint64_t id) { return id % 4 != 3; }

// One store and the faults it meets, all of one kind.
class Victim {
 public:
  Victim(const std::string& folder, const Kind& kind, std::size_t bytes, std::uint64_t seed)
      : kind_(kind), seed_(seed), io_(posix_io(), seed) {
    for (std::uint32_t id = 0; id < kIds; ++id) {
      written_.emplace_back(bytes);
      read_.emplace_back(bytes);
    }
    // One thread and one block a request, so that the calls have one order.
    store_ = must(NvmeStore::create(io_, {.dirs = {folder},
                                          .classes = {{bytes, 2 * kIds}},
                                          .engine = IoEngine::threads,
                                          .io_threads = 1,
                                          .request_slots = kIds}));
  }

  void round(Tally& tally) {
    const bool flips_reads = kind_.call == IoCall::read;
    for (std::uint64_t id = 0; id < kIds; ++id) fill(written_[id], seed_ = seed_ * 6364136223846793005u + 1);
    write(false);
    if (!flips_reads) begin();
    write(true);
    if (!flips_reads) io_.clear();
    read(false, tally);
    if (flips_reads) begin();
    read(true, tally);
    io_.clear();
  }
  std::vector<std::string> log() const { return io_.log(); }

 private:
  void begin() { io_.add({kind_.call, kind_.fault, io_.calls(kind_.call) + 1, true}); }

  void write(bool victims) {
    std::vector<Ticket> tickets;
    for (std::uint64_t id = 0; id < kIds; ++id)
      if (is_victim(id) == victims) tickets.push_back(must(store_->write_async(id, 0, written_[id].view())));
    for (const Ticket ticket : tickets) must(store_->wait(ticket));
  }

  void read(bool victims, Tally& tally) {
    std::vector<std::pair<std::uint64_t, Ticket>> tickets;
    for (std::uint64_t id = 0; id < kIds; ++id)
      if (is_victim(id) == victims) tickets.emplace_back(id, must(store_->read_async(id, read_[id].view())));
    for (const auto& [id, ticket] : tickets) count(id, store_->wait(ticket), tally);
  }

  void count(std::uint64_t id, const Status& status, Tally& tally) {
    if (!status.is_ok() && status.code() != Code::corrupt) must(status);
    const bool same = read_[id] == written_[id];
    // A read is tried twice and both are flipped; a write meets one fault.
    const std::uint64_t faults = !is_victim(id) ? 0 : kind_.call == IoCall::read ? 2 : 1;
    if (status.is_ok()) {
      tally.used += same ? 0 : 1;
      tally.faults += same ? 0 : faults;
      tally.harmless += same ? faults : 0;
    } else if (is_victim(id)) {
      tally.faults += faults;
      tally.detected += faults;
    } else {
      ++tally.collateral;
    }
  }

  const Kind kind_;
  std::uint64_t seed_;
  FaultIo io_;
  std::vector<AlignedBuffer> written_, read_;
  std::unique_ptr<NvmeStore> store_;
};

// Only a torn write can happen to be whole; any other fault that changed nothing was none.
bool sound(const Kind& kind, const Tally& tally) {
  return tally.used == 0 && (tally.harmless == 0 || kind.fault == FaultKind::tear);
}

Tally damage(const std::string& folder, const Kind& kind, std::uint64_t seed, std::uint64_t faults,
             Digester& log) {
  Tally tally;
  for (std::uint64_t n = 0; tally.faults < faults; ++n) {
    Victim victim(folder, kind, kSizes[n % std::size(kSizes)], seed + (n << 32));
    const std::uint64_t enough = std::min(faults, tally.faults + kFaultsOfAStore);
    while (tally.faults < enough && sound(kind, tally)) victim.round(tally);
    for (const std::string& line : victim.log()) log.update(line);
    if (!sound(kind, tally)) break;  // one is enough to know
  }
  return tally;
}

std::uint64_t number(const char* text) {
  std::uint64_t value = 0;
  const char* const end = text + std::strlen(text);
  if (std::from_chars(text, end, value).ptr != end)
    must(Status::error(Code::invalid, str(text, " is no number")));
  return value;
}

int run(const std::string& folder, std::uint64_t seed, std::uint64_t flips, std::uint64_t others) {
  Digester log;
  std::string json = str("{\"seed\": ", seed);
  bool good = true;
  for (const Kind& kind : kKinds) {
    const std::uint64_t faults = kind.fault == FaultKind::flip ? (flips + 1) / 2 : others;
    const Tally t = damage(folder, kind, seed, faults, log);
    good = good && sound(kind, t) && t.faults >= faults && t.detected == t.faults;
    json +=
        str(", \"", kind.name, "\": {\"faults\": ", t.faults, ", \"detected\": ", t.detected,
            ", \"collateral\": ", t.collateral, ", \"harmless\": ", t.harmless, ", \"used\": ", t.used, "}");
    std::fprintf(stderr, "%s: %llu\n", kind.name, static_cast<unsigned long long>(t.faults));
  }
  std::printf("%s, \"log\": \"%s\"}\n", json.c_str(), to_hex(log.digest()).c_str());
  return good ? 0 : 1;
}

}  // namespace
}  // namespace strata::test

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: store_corruption FOLDER SEED FLIPS OTHERS\n");
    return 2;
  }
  try {
    using strata::test::number;
    return strata::test::run(argv[1], number(argv[2]), number(argv[3]), number(argv[4]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "store_corruption: %s\n", error.what());
    return 2;
  }
}
