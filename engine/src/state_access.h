#pragma once

#include <array>
#include <vector>

#include "execution_context.h"

namespace strata {

/// First values, and reading and writing all states in bounded memory: what lives on the device passes
/// through staging memory of two slots, one of which is copied while the other is worked on; what lives on
/// the slow tier through window slots.
class StateAccess {
 public:
  explicit StateAccess(ExecutionContext& context) : context_(context) {}
  Status initialize(std::uint64_t seed);
  Status visit(Payload payload, const Engine::Visit& visit);
  Status fill(Payload payload, const Engine::Fill& fill);

 private:
  /// The payloads of a chunk that together are a state: the one asked for, and of a parameter the rest of its
  /// master where the run holds one.
  struct Opened {
    ChunkId chunk = 0;
    Payload payload = Payload::param;
    Tier tier = Tier::pinned;
    ChunkPin values, rest;
  };
  /// Where a state's elements lie: of a parameter its values and the rest of its master, of a moment its
  /// values and its scales.
  struct Part {
    const ChunkPin* pin = nullptr;  ///< null: this run does not hold it
    std::size_t offset = 0, bytes = 0;
  };
  using Parts = std::array<Part, 2>;
  using Addresses = std::array<std::byte*, 2>;
  /// What is shown or filled at once, of one tensor.
  struct Piece {
    std::int32_t tensor = 0;
    std::int64_t offset = 0, at = 0, n = 0;  ///< first element in the tensor and in the chunk, and how many
  };
  /// Pieces that lie one behind the other and are copied at once.
  struct Run {
    std::size_t first = 0, end = 0;  ///< pieces
    std::int64_t at = 0, n = 0;      ///< elements of the chunk
  };

  std::vector<Piece> pieces_of(ChunkId chunk) const;
  std::vector<Run> runs_of(const std::vector<Piece>& pieces) const;
  StatePiece piece_info(const Piece& piece) const;
  Parts parts_of(const Opened& chunk, std::int64_t at, std::int64_t n) const;
  Addresses in_place(const Opened& chunk, const Piece& piece) const;
  Addresses staged(const Opened& chunk, const Run& run, std::size_t slot, const Piece& piece) const;
  Result<Opened> open(ChunkId chunk, Payload payload, Intent intent);
  Status visit_in_ram(const Opened& chunk, const Engine::Visit& visit);
  Status visit_on_device(const Opened& chunk, const Engine::Visit& visit);
  template <class Fill>
  Status fill_pieces(Payload payload, const Fill& fill);
  template <class Fill>
  Status fill_in_ram(const Opened& chunk, const Fill& fill);
  template <class Fill>
  Status fill_on_device(const Opened& chunk, const Fill& fill);
  Status copy_run(const Opened& chunk, const Run& run, std::size_t slot, Intent intent);
  Status host_access(const Opened& chunk, const Run& run, std::size_t slot, bool writes);
  Status decode(const Opened& chunk, const Addresses& from, std::span<float> values) const;
  void encode(const Opened& chunk, const Addresses& into, std::span<const float> values) const;
  Stream& stream_of(const Opened& chunk, Intent intent) const noexcept;
  std::span<float> values_of(const Piece& piece) {
    return std::span(values_).first(static_cast<std::size_t>(piece.n));
  }

  ExecutionContext& context_;
  std::vector<float> values_ =
      std::vector<float>(static_cast<std::size_t>(kMaxStatePieceElems));  // of a piece
  std::array<Event, 2> copied_;  // the run that a slot of the staging memory held last
};

}  // namespace strata
