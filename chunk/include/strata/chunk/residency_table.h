#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <strata/chunk/payload_notes.h>
#include <strata/chunk/types.h>

namespace strata {

/// The state of one payload in one tier; README.md has the diagram.
enum class Residency : std::uint8_t { absent, filling, clean, dirty, writing_back };
constexpr std::string_view to_string(Residency state) noexcept {
  constexpr std::array<std::string_view, 5> names = {"absent", "filling", "clean", "dirty", "writing_back"};
  return names[static_cast<std::size_t>(state)];
}
/// The allowed state transitions; ResidencyTable::set_state() asserts them.
constexpr bool is_valid_transition(Residency from, Residency to) noexcept {
  using enum Residency;
  switch (from) {
    case absent:
      return to == filling || to == dirty;  // fetched, or first written here
    case filling:
      return to == clean || to == absent;  // complete, or failed
    case clean:
      return to == dirty || to == absent;  // written, or dropped for free
    case dirty:
      return to == writing_back || to == absent;  // being written back, or dead
    case writing_back:
      return to == clean || to == dirty;  // written back, or failed
  }
  return false;
}

/// Which tiers hold each payload, which copy is the newest, and which copies are in use. It owns no memory
/// and starts no transfer.
///
/// Invariant: every state was reached by valid transitions, through the only setter, and no pin ends twice.
class ResidencyTable {
 public:
  /// `notes` gets those of copies that become absent; null: none. They outlive the table.
  explicit ResidencyTable(std::size_t n_chunks, PayloadNotes* notes = nullptr);
  ~ResidencyTable();  ///< asserts that no pin lives
  ResidencyTable(const ResidencyTable&) = delete;
  ResidencyTable& operator=(const ResidencyTable&) = delete;

  std::size_t n_keys() const noexcept { return payloads_.size(); }
  Residency state(PayloadKey key, Tier tier) const noexcept { return copy(key, tier).state; }
  bool has_copy(PayloadKey key, Tier tier) const noexcept { return state(key, tier) != Residency::absent; }
  bool has_copy_outside(PayloadKey key, Tier tier) const noexcept;
  bool is_pinned(PayloadKey key, Tier tier) const noexcept { return copy(key, tier).pins > 0; }
  bool is_pinned_for_writing(PayloadKey key, Tier tier) const noexcept { return copy(key, tier).written; }
  /// How often the payload was pinned for writing or replaced by a transfer.
  std::uint32_t generation(PayloadKey key) const noexcept { return payloads_[index_of(key)].generation; }
  bool has_snapshot(PayloadKey key) const noexcept { return payloads_[index_of(key)].has_snapshot; }

  void set_state(PayloadKey key, Tier tier, Residency to);
  /// Makes the copy in `tier` dirty and all others absent, and increments the generation. The others must not
  /// be pinned.
  void make_newest(PayloadKey key, Tier tier);
  /// The contents have reached `tier`, so dirty copies elsewhere in memory become clean.
  void clean_copies_outside(PayloadKey key, Tier tier);
  void pin(PayloadKey key, Tier tier, Intent intent) noexcept;
  void unpin(PayloadKey key, Tier tier, Intent intent) noexcept;
  void set_snapshot(PayloadKey key, bool exists) noexcept { payloads_[index_of(key)].has_snapshot = exists; }

 private:
  struct CopyState {
    Residency state = Residency::absent;
    bool written = false;  ///< the pin that is alive has written it
    std::int32_t pins = 0;
  };
  struct PayloadState {
    std::array<CopyState, kTiers> copies;
    std::uint32_t generation = 0;
    bool has_snapshot = false;
  };
  CopyState& copy(PayloadKey key, Tier tier) noexcept {
    return payloads_[index_of(key)].copies[index_of(tier)];
  }
  const CopyState& copy(PayloadKey key, Tier tier) const noexcept {
    return payloads_[index_of(key)].copies[index_of(tier)];
  }

  std::vector<PayloadState> payloads_;  // indexed by key
  PayloadNotes* const notes_;
};

}  // namespace strata
