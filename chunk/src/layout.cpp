#include <strata/chunk/layout.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include <strata/runtime/assert.h>
#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>
#include <strata/runtime/units.h>

namespace strata {
namespace {

struct Packed {
  std::vector<ChunkInfo> chunks;
  std::vector<std::vector<Slice>> slices;  // indexed by tensor
  std::int64_t held_elems() const {
    return std::accumulate(chunks.begin(), chunks.end(), std::int64_t{0},
                           [](std::int64_t n, const ChunkInfo& c) { return n + c.n_elems; });
  }
};

// First fit over the most recent chunks of the group, in the given order: tensors used together stay adjacent
// in memory, and small tensors fill the gaps left by large ones.
constexpr std::size_t kOpenChunks = 4;

/// The groups of the tensors, in order of first use, and what the tensors need.
struct Grouped {
  std::vector<GroupKey> groups;
  std::vector<std::int32_t> group_of;  // indexed by tensor
  std::int64_t used_elems = 0;
  std::int64_t largest_elems = 0;  // the largest tensor or block, in whole units
};

// The elements of a block of a tensor.
std::int64_t block_elems(const LayoutTensor& tensor) {
  return tensor.block_elems > 0 ? std::min(tensor.block_elems, tensor.n_elems) : tensor.n_elems;
}

// The size of each group's chunks. Where parts of a model are frozen, groups differ by orders of magnitude,
// such as adapters and their base: there, a group that does not fill a chunk has one that is as large as it
// needs.
std::vector<std::int64_t> chunk_sizes(std::span<const LayoutTensor> tensors, const Grouped& grouped,
                                      std::int64_t largest, std::int64_t unit) {
  const auto n_trained = std::count_if(grouped.groups.begin(), grouped.groups.end(),
                                       [](const GroupKey& group) { return group.trainable; });
  if (n_trained == 0 || n_trained == std::ssize(grouped.groups))
    return std::vector<std::int64_t>(grouped.groups.size(), largest);
  std::vector<std::int64_t> sizes(grouped.groups.size());
  for (std::size_t t = 0; t < tensors.size(); ++t)
    if (round_up(block_elems(tensors[t]), ChunkLayout::kSliceAlign) <= largest && !tensors[t].is_elsewhere)
      sizes[static_cast<std::size_t>(grouped.group_of[t])] +=
          round_up(tensors[t].n_elems, ChunkLayout::kSliceAlign);
  for (std::int64_t& size : sizes) size = std::min(largest, round_up(size, unit));
  return sizes;
}

class Packing {
 public:
  Packing(std::size_t n_tensors, std::vector<std::int64_t> sizes, std::int64_t unit)
      : sizes_(std::move(sizes)), unit_(unit), open_of_(sizes_.size()) {
    packed_.slices.resize(n_tensors);
  }

  void add(std::int32_t tensor, std::int32_t group, std::int64_t n_elems, std::int64_t block_elems) {
    const std::int64_t chunk_elems = sizes_[static_cast<std::size_t>(group)];
    const std::int64_t padded = round_up(n_elems, ChunkLayout::kSliceAlign);
    if (padded > chunk_elems) return add_blocks(tensor, group, n_elems, block_elems, chunk_elems);
    Open& open = find_open(group, padded, chunk_elems);
    place({static_cast<ChunkId>(open.chunk), open.fill, n_elems, tensor, 0});
    open.fill += padded;
  }
  // One slice without elements.
  void skip(std::int32_t tensor) {
    packed_.slices[static_cast<std::size_t>(tensor)].push_back({.tensor = tensor});
  }
  Packed take() && { return std::move(packed_); }

 private:
  struct Open {
    std::size_t chunk;
    std::int64_t fill;
  };

  Open& open_chunk(std::int32_t group, std::int64_t chunk_elems) {
    std::vector<Open>& open = open_of_[static_cast<std::size_t>(group)];
    if (open.size() == kOpenChunks) open.erase(open.begin());
    open.push_back({packed_.chunks.size(), 0});
    packed_.chunks.push_back({group, chunk_elems, 0, {}});
    return open.back();
  }
  Open& find_open(std::int32_t group, std::int64_t padded, std::int64_t chunk_elems) {
    std::vector<Open>& open = open_of_[static_cast<std::size_t>(group)];
    const auto at =
        std::find_if(open.begin(), open.end(), [&](const Open& o) { return o.fill + padded <= chunk_elems; });
    return at != open.end() ? *at : open_chunk(group, chunk_elems);
  }

  // As many blocks a chunk as fit, or one that is oversize. The chunks have no other tensors, except for the
  // end of the last one, so that the values of a tensor come in order where states are read chunk by chunk.
  void add_blocks(std::int32_t tensor, std::int32_t group, std::int64_t n_elems, std::int64_t block_elems,
                  std::int64_t chunk_elems) {
    const std::int64_t together = std::max<std::int64_t>(1, chunk_elems / block_elems) * block_elems;
    for (std::int64_t first = 0; first < n_elems; first += together) {
      const std::int64_t n = std::min(together, n_elems - first);
      const bool is_oversize = n > chunk_elems, is_last = first + n == n_elems;
      const Slice slice = {static_cast<ChunkId>(packed_.chunks.size()), 0, n, tensor, first};
      if (!is_oversize && is_last)
        open_chunk(group, chunk_elems).fill = round_up(n, ChunkLayout::kSliceAlign);
      else
        packed_.chunks.push_back({group, is_oversize ? round_up(n, unit_) : chunk_elems, 0, {}});
      place(slice);
    }
  }

  void place(const Slice& slice) {
    ChunkInfo& chunk = packed_.chunks[slice.chunk];
    chunk.used_elems += slice.n_elems;
    chunk.slices.push_back(slice);
    packed_.slices[static_cast<std::size_t>(slice.tensor)].push_back(slice);
  }

  Packed packed_;
  const std::vector<std::int64_t> sizes_;  // chunks of each group have these elements
  const std::int64_t unit_;
  std::vector<std::vector<Open>> open_of_;  // indexed by group; the oldest comes first
};

Packed pack(std::span<const LayoutTensor> tensors, const Grouped& grouped, std::int64_t largest_chunk,
            std::int64_t unit) {
  Packing packing(tensors.size(), chunk_sizes(tensors, grouped, largest_chunk, unit), unit);
  for (std::size_t t = 0; t < tensors.size(); ++t)
    if (tensors[t].is_elsewhere)
      packing.skip(static_cast<std::int32_t>(t));
    else
      packing.add(static_cast<std::int32_t>(t), grouped.group_of[t], tensors[t].n_elems,
                  block_elems(tensors[t]));
  return std::move(packing).take();
}

// Cost of a chunk size: the wasted fraction of the bytes held, plus the fraction of a copy's time that is
// lost to latency. Both are fractions of the same bytes, so they can be added.
double cost_of(const Packed& packed, std::int64_t used, double chunk_bytes, double half_rate_bytes) {
  const double waste = 1.0 - static_cast<double>(used) / static_cast<double>(packed.held_elems());
  return waste + half_rate_bytes / (chunk_bytes + half_rate_bytes);
}

Status check_options(const LayoutOptions& options, std::int64_t unit) {
  const Sharding& sharding = options.sharding;
  if (sharding.ranks < 1 || sharding.part < 0 || sharding.part >= sharding.ranks)
    return Status::error(
        Code::invalid, str("part ", sharding.part, " is out of range for ", plural(sharding.ranks, "rank")));
  if (sharding.shards < 1 || sharding.ranks % sharding.shards != 0)
    return Status::error(Code::invalid, str(plural(sharding.shards, "shard"), " cannot be held by ",
                                            plural(sharding.ranks, "rank"), "; the number must divide it"));
  if (options.chunk_elems < 0 || options.chunk_elems % unit != 0)
    return Status::error(
        Code::invalid, str("offload.chunk is ", options.chunk_elems, " elements; it must be a multiple of ",
                           unit, " (", ChunkLayout::kSliceAlign, " x ", plural(sharding.ranks, "rank"), ")"));
  return Status::ok();
}

Result<Grouped> group_tensors(std::span<const LayoutTensor> tensors, std::int64_t unit) {
  Grouped grouped;
  for (const LayoutTensor& tensor : tensors) {
    if (tensor.is_elsewhere) {
      grouped.group_of.push_back(-1);
      continue;
    }
    if (tensor.n_elems <= 0)
      return Status::error(Code::invalid, str("tensor ", tensor.name, " has ", tensor.n_elems, " elements"));
    if (tensor.block_elems < 0 || tensor.block_elems % ChunkLayout::kSliceAlign != 0)
      return Status::error(Code::invalid,
                           str("tensor ", tensor.name, " has blocks of ", tensor.block_elems,
                               " elements; they must be a multiple of ", ChunkLayout::kSliceAlign));
    auto found = std::find(grouped.groups.begin(), grouped.groups.end(), tensor.group);
    if (found == grouped.groups.end()) found = grouped.groups.insert(found, tensor.group);
    grouped.group_of.push_back(static_cast<std::int32_t>(found - grouped.groups.begin()));
    grouped.used_elems += tensor.n_elems;
    grouped.largest_elems = std::max(grouped.largest_elems, round_up(block_elems(tensor), unit));
  }
  if (grouped.groups.empty()) return Status::error(Code::invalid, "a layout needs at least one tensor");
  return grouped;
}

struct ChunkSize {
  std::int64_t elems = 0;
  std::string how;  // how it was chosen
};

// Tries sizes from a quarter of the largest tensor (which is then oversize) to four times it, in at most
// about 512 steps.
ChunkSize search_chunk_size(std::span<const LayoutTensor> tensors, const Grouped& grouped,
                            const LayoutOptions& options, std::int64_t unit) {
  const std::size_t param_bytes = size_of(grouped.groups.front().compute);
  const std::int64_t low = std::max(unit, round_up(grouped.largest_elems / 4, unit));
  std::int64_t high = std::min(round_up(grouped.used_elems, unit) + unit, 4 * grouped.largest_elems);
  if (options.max_chunk_elems > 0)
    high = std::min(high, std::max(options.max_chunk_elems / unit * unit, unit));
  const std::int64_t first = std::min(low, high);
  const std::int64_t step = std::max(unit, round_up((high - low) / 512, unit));
  std::int64_t best = 0;
  double best_cost = std::numeric_limits<double>::infinity();
  for (std::int64_t n = first; n <= high; n += step) {
    const double cost =
        cost_of(pack(tensors, grouped, n, unit), grouped.used_elems,
                static_cast<double>(n) * static_cast<double>(param_bytes), options.half_rate_bytes);
    if (cost < best_cost) {
      best_cost = cost;
      best = n;
    }
  }
  return {best, str("lowest waste and transfer overhead of ", plural((high - first) / step + 1, "size"),
                    " up to ", format_bytes(static_cast<std::uint64_t>(high) * param_bytes))};
}

}  // namespace

Result<ChunkLayout> ChunkLayout::create(std::span<const LayoutTensor> tensors, const LayoutOptions& options) {
  const std::int64_t unit = kSliceAlign * std::max(options.sharding.ranks, 1);
  STRATA_TRY(check_options(options, unit));
  STRATA_TRY_ASSIGN(Grouped grouped, group_tensors(tensors, unit));
  const auto [elems, how] = options.chunk_elems != 0 ? ChunkSize{options.chunk_elems, "as requested"}
                                                     : search_chunk_size(tensors, grouped, options, unit);
  Packed packed = pack(tensors, grouped, elems, unit);
  ChunkLayout layout;
  layout.sharding_ = options.sharding;
  layout.groups_ = std::move(grouped.groups);
  layout.chunks_ = std::move(packed.chunks);
  layout.slices_ = std::move(packed.slices);
  layout.chunk_elems_ = elems;
  layout.size_payloads();
  const std::int64_t wasted = layout.wasted_elems();
  const std::uint64_t param_bytes =
      static_cast<std::uint64_t>(elems) * size_of(layout.groups_.front().compute);
  layout.explanation_ = str(plural(layout.chunks_.size(), "chunk"), " of ", elems, " elements (",
                            format_bytes(param_bytes), " of parameters), ", how, "; ",
                            fmt::format("{:.1f}", 100.0 * static_cast<double>(wasted) /
                                                      static_cast<double>(grouped.used_elems + wasted)),
                            " % unused");
  return layout;
}

const Slice& ChunkLayout::slice(std::int32_t tensor, std::int64_t at) const {
  const std::span<const Slice> all = slices(tensor);
  const auto next =
      std::find_if(all.begin(), all.end(), [at](const Slice& slice) { return slice.first > at; });
  STRATA_ASSERT(next != all.begin(), "tensor ", tensor, " has no element ", at);
  return *(next - 1);
}

void ChunkLayout::size_payloads() {
  for (ChunkId id = 0; id < n_chunks(); ++id) {
    std::array<std::size_t, kPayloads>& bytes = payload_bytes_.emplace_back();
    for (std::size_t p = 0; p < kPayloads; ++p) {
      const auto payload = static_cast<Payload>(p);
      bytes[p] = round_up(bytes_of(group_of(id), payload, range(id, payload).size()), kPageBytes);
    }
  }
  std::vector<std::size_t>& sizes = payload_sizes_;
  for (const auto& of_chunk : payload_bytes_)
    for (const std::size_t bytes : of_chunk)
      if (bytes > 0) sizes.push_back(bytes);
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  for (const auto& of_chunk : payload_bytes_) {
    std::array<std::uint32_t, kPayloads>& classes = size_class_.emplace_back();
    for (std::size_t p = 0; p < kPayloads; ++p)
      classes[p] = static_cast<std::uint32_t>(std::lower_bound(sizes.begin(), sizes.end(), of_chunk[p]) -
                                              sizes.begin());
  }
}

namespace {

ElemRange nth(std::int64_t n_elems, std::int32_t index, std::int32_t count) noexcept {
  const std::int64_t each = n_elems / count;
  return {each * index, each * (index + 1)};
}

}  // namespace

ElemRange ChunkLayout::range(ChunkId id, Payload payload) const noexcept {
  const std::int64_t n = chunks_[id].n_elems;
  const bool sharded = sharding_.shards > 1 && (group_of(id).trainable || sharding_.shards_frozen);
  const bool whole = payload == Payload::grad || (payload == Payload::accum && sharding_.sums_locally);
  if (payload == Payload::received) return {0, sharding_.ranks > 1 && sharding_.receives ? n : 0};
  if (payload == Payload::gathered) return {0, sharded ? n : 0};
  return sharded && !whole ? nth(n, sharding_.shard(), sharding_.shards) : ElemRange{0, n};
}

ElemRange ChunkLayout::summed(ChunkId id) const noexcept {
  return nth(chunks_[id].n_elems, sharding_.part, sharding_.ranks);
}

std::int64_t ChunkLayout::wasted_elems() const noexcept {
  std::int64_t wasted = 0;
  for (const ChunkInfo& chunk : chunks_) wasted += chunk.n_elems - chunk.used_elems;
  return wasted;
}

}  // namespace strata
