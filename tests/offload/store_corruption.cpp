// Corrupts the objects of a store a given number of times and counts how many corruptions were detected:
//   store_corruption FOLDER SEED FLIPS OTHERS
// FLIPS bits are flipped, half of them in the file and half in the buffer after a read, under a real
// io_uring, in objects from one page to several blocks of 4 MiB, on one path and on several. OTHERS writes
// each are lost, misdirected and torn, through FaultIo. The faults are a function of the arguments, and `log`
// is a digest of them. Prints one line of JSON. Exit code: 1 if corrupted bytes were returned as good or a
// fault was not detected; 77 if the kernel refuses io_uring.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <strata/offload/nvme_store.h>
#include <strata/runtime/io/digest.h>
#include <strata/runtime/rng.h>
#include <strata/runtime/str.h>

#include "corrupting_ring.h"
#include "store/file_store.h"
#include "support/aligned_buffer.h"
#include "support/fault_io.h"

namespace strata::test {
namespace {

constexpr std::uint64_t kFaultsOfAStore = 2'000;  // bounded, since a store and FaultIo store every failure
constexpr int kRefused = 77;

// A store: its objects, the files they are striped over, and the maximum number of faults injected into it.
struct Shape {
  std::size_t bytes;
  std::uint32_t ids = 64;
  int paths = 1;
  std::size_t block_bytes = NvmeOptions{}.block_bytes;
  std::uint64_t faults = kFaultsOfAStore;
};
constexpr Shape kOnThreads[] = {{4 * kKiB}, {8 * kKiB}, {4 * kKiB}, {16 * kKiB}, {4 * kKiB}, {64 * kKiB}};
constexpr Shape kOnRing[] = {{4 * kKiB},
                             {8 * kKiB, 64, 2},
                             {16 * kKiB, 64, 2, 4 * kKiB},
                             {4 * kKiB, 64, 3},
                             {64 * kKiB, 64, 3, 16 * kKiB},
                             {9 * kMiB, 8, 2, 4 * kMiB, 48}};

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
  std::uint64_t faults = 0;      // faults that changed bytes
  std::uint64_t detected = 0;    // faults whose read failed
  std::uint64_t collateral = 0;  // failed reads of ids whose own write was sound but hit by a misdirected one
  std::uint64_t harmless = 0;    // torn writes that wrote all of their sectors
  std::uint64_t used = 0;        // reads that succeeded with other bytes than were written
  std::uint64_t on_several_paths = 0, of_large_blocks = 0;  // subsets of `faults`
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

// Three of four ids of a round get the fault; the fourth is only hit by faults of the others.
constexpr bool is_victim(std::uint64_t id) { return id % 4 != 3; }

// One store with injected faults of one kind.
class Victim {
 public:
  Victim(const std::string& folder, const Kind& kind, const Shape& shape, std::uint64_t seed)
      : kind_(kind), shape_(shape), seed_(seed), io_(posix_io(), seed) {
    for (std::uint32_t id = 0; id < shape.ids; ++id) {
      written_.emplace_back(shape.bytes);
      read_.emplace_back(shape.bytes);
    }
    NvmeOptions options{.classes = {{shape.bytes, 2 * shape.ids}}, .max_requests = shape.ids};
    for (int path = 0; path < shape.paths; ++path) {
      options.dirs.push_back(str(folder, "/path", path));
      options.path_rates.push_back(path + 1);
    }
    store_ = kind.fault == FaultKind::flip ? on_ring(std::move(options)) : on_threads(std::move(options));
  }

  void round(Tally& tally) {
    const bool in_read = kind_.call == IoCall::read;
    for (std::uint64_t id = 0; id < shape_.ids; ++id)
      fill(written_[id], seed_ = seed_ * 6364136223846793005u + 1);
    write(false);
    if (!in_read) begin(written_);
    write(true);
    if (!in_read) end();
    read(false, tally);
    if (in_read) begin(read_);
    read(true, tally);
    end();
  }
  std::vector<std::string> log() const { return kind_.fault == FaultKind::flip ? log_ : io_.log(); }

 private:
  StorePtr<NvmeStore> on_ring(NvmeOptions options) {
    options.engine = IoEngine::uring;
    options.block_bytes = shape_.block_bytes;
    const auto make_ring = [this](std::span<const int> descriptors,
                                  std::uint32_t depth) -> Result<std::unique_ptr<detail::RingOps>> {
      STRATA_TRY_ASSIGN(auto ring, detail::make_uring(descriptors, depth));
      return std::unique_ptr<detail::RingOps>(
          std::make_unique<CorruptingRing>(std::move(ring), descriptors, flips_));
    };
    return must(detail::FileStore::create(posix_io(), std::move(options), make_ring));
  }
  // One thread and one block per request, so that the order of calls is fixed.
  StorePtr<NvmeStore> on_threads(NvmeOptions options) {
    options.engine = IoEngine::threads;
    options.io_threads = 1;
    return must(NvmeStore::create(io_, std::move(options)));
  }

  void begin(const std::vector<AlignedBuffer>& buffers) {
    if (kind_.fault != FaultKind::flip)
      return io_.add({kind_.call, kind_.fault, io_.calls(kind_.call) + 1, true});
    for (std::uint64_t id = 0; id < shape_.ids; ++id) {
      if (!is_victim(id)) continue;
      const std::uint64_t bit = Rng(seed_, 0).below(id, shape_.bytes * 8);
      flips_.arm(buffers[id].view(), bit, kind_.call == IoCall::write);
      log_.push_back(str(kind_.name, " ", shape_.bytes, " ", id, " ", bit));
    }
  }
  void end() {
    io_.clear();
    flips_.clear();
  }

  void write(bool victims) {
    std::vector<IoTicket> tickets;
    for (std::uint64_t id = 0; id < shape_.ids; ++id)
      if (is_victim(id) == victims) tickets.push_back(must(store_->write_async(id, 0, written_[id].view())));
    for (const IoTicket ticket : tickets) must(store_->wait(ticket));
  }

  void read(bool victims, Tally& tally) {
    std::vector<std::pair<std::uint64_t, IoTicket>> tickets;
    for (std::uint64_t id = 0; id < shape_.ids; ++id)
      if (is_victim(id) == victims) tickets.emplace_back(id, must(store_->read_async(id, read_[id].view())));
    for (const auto& [id, ticket] : tickets) count(id, store_->wait(ticket), tally);
  }

  void count(std::uint64_t id, const Status& status, Tally& tally) {
    if (!status.is_ok() && status.code() != Code::corrupt) must(status);
    const bool same = read_[id] == written_[id];
    // A read is tried twice and flipped both times; a write gets one fault.
    const std::uint64_t faults = !is_victim(id) ? 0 : kind_.call == IoCall::read ? 2 : 1;
    if (status.is_ok()) {
      tally.used += same ? 0 : 1;
      tally.harmless += same ? faults : 0;
      if (!same) met(faults, tally);
    } else if (is_victim(id)) {
      met(faults, tally);
      tally.detected += faults;
    } else {
      ++tally.collateral;
    }
  }

  void met(std::uint64_t faults, Tally& tally) const {
    tally.faults += faults;
    if (shape_.paths > 1) tally.on_several_paths += faults;
    if (shape_.bytes > 4 * kMiB) tally.of_large_blocks += faults;
  }

  const Kind kind_;
  const Shape shape_;
  std::uint64_t seed_;
  FaultIo io_;
  BitFlips flips_;
  std::vector<std::string> log_;
  std::vector<AlignedBuffer> written_, read_;
  StorePtr<NvmeStore> store_;  // last: its ring refers to flips_
};

// Only a torn write may be harmless; any other fault that changed nothing was not injected.
bool sound(const Kind& kind, const Tally& tally) {
  return tally.used == 0 && (tally.harmless == 0 || kind.fault == FaultKind::tear);
}

Tally damage(const std::string& folder, const Kind& kind, std::uint64_t seed, std::uint64_t faults,
             Digester& log) {
  const std::span<const Shape> shapes =
      kind.fault == FaultKind::flip ? std::span<const Shape>(kOnRing) : std::span<const Shape>(kOnThreads);
  const std::uint64_t share =
      std::max<std::uint64_t>(1, faults / shapes.size());  // so that few faults also cover every shape
  Tally tally;
  for (std::uint64_t n = 0; tally.faults < faults; ++n) {
    const Shape& shape = shapes[n % shapes.size()];
    Victim victim(folder, kind, shape, seed + (n << 32));
    const std::uint64_t enough = std::min(faults, tally.faults + std::min(shape.faults, share));
    while (tally.faults < enough && sound(kind, tally)) victim.round(tally);
    for (const std::string& line : victim.log()) log.update(line);
    if (!sound(kind, tally)) break;  // one failure is enough
  }
  return tally;
}

std::uint64_t number(const char* text) {
  std::uint64_t value = 0;
  const char* const end = text + std::strlen(text);
  if (std::from_chars(text, end, value).ptr != end)
    must(Status::error(Code::invalid, str(text, " is not a number")));
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
    json += str(", \"", kind.name, "\": {\"faults\": ", t.faults, ", \"detected\": ", t.detected,
                ", \"collateral\": ", t.collateral, ", \"harmless\": ", t.harmless, ", \"used\": ", t.used,
                ", \"on_several_paths\": ", t.on_several_paths, ", \"of_large_blocks\": ", t.of_large_blocks,
                "}");
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
  } catch (const strata::Error& error) {
    std::fprintf(stderr, "store_corruption: %s\n", error.what());
    return error.status().code() == strata::Code::unsupported ? strata::test::kRefused : 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "store_corruption: %s\n", error.what());
    return 2;
  }
}
