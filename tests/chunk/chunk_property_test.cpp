#include <map>

#include <gtest/gtest.h>

#include <strata/runtime/rng.h>

#include "chunk/chunk_fixture.h"

namespace strata {
namespace {

using test::ChunkFixture;

constexpr Tier kMemory[] = {Tier::device, Tier::pinned};

// A sequence of random numbers.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : rng_(seed, 77) {}
  std::uint64_t below(std::uint64_t bound) { return rng_.below(next_++, bound); }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  template <class T>
  T pick(std::initializer_list<T> of) {
    return of.begin()[below(of.size())];
  }

 private:
  Rng rng_;
  std::uint64_t next_ = 0;
};

Placement random_placement(const ChunkLayout& layout, Dice& dice) {
  Placement placement = test::bare_placement(layout, 1 + static_cast<std::uint32_t>(dice.below(3)),
                                             2 + static_cast<std::uint32_t>(dice.below(3)),
                                             1 + static_cast<std::uint32_t>(dice.below(3)));
  for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk)
    for (const Payload payload : {Payload::param, Payload::master, Payload::m, Payload::v, Payload::accum})
      if (layout.has(chunk, payload))
        placement.homes[chunk][static_cast<std::size_t>(payload)] =
            dice.pick({Tier::device, Tier::pinned, Tier::nvme, Tier::nvme});
  return placement;
}

std::vector<PayloadKey> keys_of(const ChunkLayout& layout) {
  std::vector<PayloadKey> keys;
  for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk)
    for (std::size_t p = 0; p < kPayloads; ++p)
      if (layout.has(chunk, static_cast<Payload>(p))) keys.push_back({chunk, static_cast<Payload>(p)});
  return keys;
}

// A random walk with a naive model of the expected state: the version that each key holds, and the pins that
// are alive.
class Walk {
 public:
  Walk(const ChunkLayout& layout, const Placement& placement, Dice& dice)
      : fixture_(layout, placement), dice_(dice), keys_(keys_of(layout)) {
    shuffle_schedule();
  }

  void step() {
    if (dice_.one_in(60)) fixture_.mover.fail_reads = 1 + static_cast<int>(dice_.below(3));
    if (dice_.one_in(60)) fixture_.mover.fail_writes = 1 + static_cast<int>(dice_.below(3));
    if (dice_.one_in(200)) fixture_.mover.fail_copies = 1;
    switch (dice_.below(17)) {
      case 0:
      case 1:
      case 2:
        pin(Intent::read);
        break;
      case 3:
        pin(Intent::update);
        break;
      case 4:
        pin(Intent::overwrite);
        break;
      case 5:
      case 6:
        unpin();
        break;
      case 7:
        prefetch();
        break;
      case 8:
        write_back();
        break;
      case 9:
        dice_.one_in(4) ? drop() : evict();
        break;
      case 10:
        move_on();
        break;
      case 12:
        transfer();
        break;
      default:
        snapshot();
        break;
      case 11:
        allow(dice_.one_in(8) ? fixture_.manager->write_backs().wait_all()
                              : fixture_.manager->write_backs().pump(),
              "wait_write_backs");
        break;
    }
    const Status sound = fixture_.audit();
    ASSERT_TRUE(sound.is_ok()) << sound.to_string();
    for (const Tier tier : kMemory)
      ASSERT_LE(fixture_.charged_bytes(tier), fixture_.budgets[static_cast<std::size_t>(tier)].limit_bytes());
  }

  void finish() {
    pins_.clear();
    fixture_.mover.fail_reads = fixture_.mover.fail_writes = fixture_.mover.fail_copies = 0;
    for (const auto& [i, version] :
         versions_)  // payloads without a home come first: afterwards their copies block nothing
      if (!fixture_.placement.home(key(i))) {
        fixture_.check(key(i),
                       fixture_.manager->residency().state(key(i), Tier::device) == Residency::absent
                           ? Tier::pinned
                           : Tier::device,
                       version);
        must(fixture_.manager->drop(key(i)));
      }
    for (const auto& [i, version] : versions_)
      if (fixture_.placement.home(key(i))) fixture_.check(key(i), Tier::pinned, version);
    must(fixture_.manager->write_backs().wait_all());
    EXPECT_EQ(fixture_.differences, 0);
    must(fixture_.manager->status());
  }
  std::uint64_t refusals() const { return refusals_; }
  std::uint64_t transferred() const { return transferred_; }
  std::uint64_t rolled_back() const { return rolled_back_; }

 private:
  struct Held {
    ChunkPin pin;
    Tier tier;
    bool writes;
  };
  PayloadKey key(std::size_t i) const { return keys_[i]; }
  std::size_t random_key() { return dice_.below(keys_.size()); }
  bool pinned(std::size_t i, bool writers_only = false) const {
    for (const Held& held : pins_)
      if (held.pin.key() == key(i) && (held.writes || !writers_only)) return true;
    return false;
  }

  // A refusal is correct only if pinned copies and last copies without a home leave no slot; a failure only
  // if one was injected.
  void allow(const Status& status, const char* what) {
    if (status.is_ok()) return;
    ++refusals_;
    if (status.code() == Code::does_not_fit) {
      EXPECT_TRUE(crowded()) << what << ": " << status.to_string();
    } else {
      EXPECT_NE(status.message().find("injected"), std::string_view::npos)
          << what << ": " << status.to_string();
    }
  }
  bool crowded() const {
    for (const Tier tier : kMemory)
      for (std::uint32_t c = 0; c < fixture_.placement.classes.size(); ++c) {
        std::size_t stuck =
            tier == Tier::pinned ? 1 : 0;  // the source of a copy to the device stays pinned meanwhile
        for (std::size_t i = 0; i < keys_.size(); ++i) {
          if (fixture_.placement.class_of(fixture_.layout, key(i)) != c ||
              fixture_.placement.home(key(i)) == tier)
            continue;
          if (fixture_.manager->residency().state(key(i), tier) == Residency::absent) continue;
          stuck += pinned(i) || !fixture_.placement.home(key(i)) ? 1u : 0u;
        }
        if (stuck >= fixture_.placement.classes[c].window[static_cast<std::size_t>(tier)]) return true;
      }
    return false;
  }

  void pin(Intent intent) {
    const std::size_t i = random_key();
    if (pins_.size() >= 4 || pinned(i, intent == Intent::read)) return;
    if (intent != Intent::overwrite && versions_.count(i) == 0) return;
    const Tier tier = dice_.pick({Tier::device, Tier::pinned});
    Stream& stream = fixture_.stream_of(tier);
    const std::uint32_t generation = fixture_.manager->residency().generation(key(i));
    Result<ChunkPin> got = fixture_.manager->pin(key(i), tier, intent, stream);
    if (!got.has_value()) {
      allow(got.status(), "pin");
      EXPECT_EQ(fixture_.manager->residency().generation(key(i)), generation);
      return;
    }
    if (intent != Intent::overwrite) fixture_.expect(*got, stream, versions_.at(i));
    if (intent != Intent::read) fixture_.write(*got, stream, versions_[i] = ++version_);
    EXPECT_EQ(fixture_.manager->residency().generation(key(i)),
              generation + (intent == Intent::read ? 0 : 1));
    pins_.push_back({std::move(*got), tier, intent != Intent::read});
    if (dice_.one_in(3)) must(fixture_.backend->synchronize(stream));
    ASSERT_EQ(fixture_.differences, 0);
  }
  void unpin() {
    if (!pins_.empty()) pins_.erase(pins_.begin() + static_cast<std::ptrdiff_t>(dice_.below(pins_.size())));
  }
  void prefetch() {
    const std::size_t i = random_key();
    if (versions_.count(i) == 0 || pinned(i, true)) return;
    const auto begun = fixture_.manager->prefetch(key(i), dice_.pick({Tier::device, Tier::pinned}));
    if (!begun.has_value()) allow(begun.status(), "prefetch");
  }
  // Takes a snapshot of a key, or ends one by commit or rollback.
  void snapshot() {
    const std::size_t i = random_key();
    if (versions_.count(i) == 0 || pinned(i) || fixture_.placement.home(key(i)) != Tier::nvme) return;
    if (!fixture_.manager->residency().has_snapshot(key(i))) {
      if (fixture_.manager->residency().state(key(i), Tier::nvme) != Residency::clean) return;
      const Status status = fixture_.manager->snapshot(key(i));
      allow(status, "snapshot");
      if (status.is_ok()) snapshots_[i] = versions_[i];
    } else if (dice_.one_in(2)) {
      allow(fixture_.manager->commit(key(i)), "commit");
    } else {
      fixture_.manager->rollback(key(i));
      versions_[i] = snapshots_[i];
      EXPECT_EQ(fixture_.manager->residency().state(key(i), Tier::nvme), Residency::clean);
      ++rolled_back_;
    }
  }
  void write_back() {
    const std::size_t i = random_key();
    if (versions_.count(i) != 0 && !pinned(i, true))
      allow(fixture_.manager->write_back(key(i)), "write_back");
  }
  void drop() {
    const std::size_t i = random_key();
    if (pinned(i)) return;
    const Status status = fixture_.manager->drop(key(i));
    allow(status, "drop");
    if (status.is_ok()) versions_.erase(i);
  }
  // Transfers any payload to any other of the same size, whose contents it replaces.
  void transfer() {
    const std::size_t from = random_key(), to = random_key();
    const auto tier = fixture_.placement.home(key(to));
    if (from == to || !tier || *tier == Tier::nvme || pinned(from) || pinned(to) ||
        fixture_.placement.class_of(fixture_.layout, key(from)) !=
            fixture_.placement.class_of(fixture_.layout, key(to)) ||
        fixture_.manager->residency().state(key(from), *tier) == Residency::absent)
      return;
    const Status status = fixture_.manager->transfer(key(from), key(to), *tier);
    allow(status, "transfer");
    if (!status.is_ok()) return;
    ++transferred_;
    versions_[to] = versions_.at(from);
    versions_.erase(from);
  }
  void evict() {
    const std::size_t i = random_key();
    const Tier tier = dice_.pick({Tier::device, Tier::pinned});
    const auto home = fixture_.placement.home(key(i));
    if (!home || home == tier || pinned(i)) return;
    allow(fixture_.manager->evict(key(i), tier), "evict");
  }
  void shuffle_schedule() {
    uses_.clear();
    for (std::int32_t at = 0; at < 40; ++at)
      for (std::uint64_t n = dice_.below(3); n-- > 0;)
        uses_.push_back({at, key(random_key()), dice_.pick({Tier::device, Tier::pinned})});
    fixture_.uses.set_uses(uses_, 40);
    position_ = 0;
  }
  void move_on() {
    if (++position_ == 40) return shuffle_schedule();
    fixture_.uses.set_position(position_);
  }

  ChunkFixture fixture_;
  Dice& dice_;
  const std::vector<PayloadKey> keys_;
  std::vector<Use> uses_;
  std::map<std::size_t, std::uint32_t> versions_, snapshots_;
  std::uint32_t version_ = 0;
  std::int32_t position_ = 0;
  std::uint64_t refusals_ = 0, transferred_ = 0, rolled_back_ = 0;
  std::vector<Held> pins_;  // last: released before the fixture is destroyed
};

struct Walked {
  std::uint64_t refusals = 0, transferred = 0, rolled_back = 0;
};

// Runs the walk of one seed. Returns how often a call was refused, contents were transferred, and older
// contents were rolled back to.
Walked walk(std::uint64_t seed) {
  Dice dice(seed);
  const GroupKey f32, bf16{.compute = DType::bf16, .grad = DType::bf16, .accum = DType::bf16},
      f16{.compute = DType::f16, .grad = DType::f16};
  const ChunkLayout layout = test::small_layout(1 + static_cast<int>(dice.below(5)),
                                                static_cast<int>(dice.below(3)), dice.pick({f32, bf16, f16}));
  const Placement placement = random_placement(layout, dice);
  Walk walk(layout, placement, dice);
  for (int op = 0; op < 600 && !testing::Test::HasFailure(); ++op) walk.step();
  if (!testing::Test::HasFailure()) walk.finish();
  return {walk.refusals(), walk.transferred(), walk.rolled_back()};
}

TEST(ChunkPropertyTest, RandomOperationsNeverLoseOrMixUpContents) {
  std::uint64_t refusals = 0, transferred = 0, rolled_back = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) try {
      const Walked walked = walk(seed);
      refusals += walked.refusals;
      transferred += walked.transferred;
      rolled_back += walked.rolled_back;
      ASSERT_FALSE(HasFailure()) << "seed " << seed;
    } catch (const Error& error) {
      FAIL() << "seed " << seed << ": " << error.what();
    }
  // All paths were exercised. How often depends on the order in which the compiler evaluates arguments.
  EXPECT_GT(refusals, 1000u);
  EXPECT_GT(transferred, 50u);
  EXPECT_GT(rolled_back, 100u);
}

}  // namespace
}  // namespace strata
