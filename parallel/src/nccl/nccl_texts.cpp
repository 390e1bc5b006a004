#include "nccl/nccl_texts.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace strata::detail {
namespace {

// A block is the length of a text and as much of it as fits. Nobody knows how long the texts of the others
// are, so a first round exchanges blocks of this size, and a second one larger blocks if a text needs them.
constexpr std::size_t kFirstBlock = 512;
constexpr std::size_t kLength = sizeof(std::uint64_t);

std::uint64_t length_of(const std::byte* block) {
  std::uint64_t length = 0;
  std::memcpy(&length, block, kLength);
  return length;
}

}  // namespace

Status NcclTexts::reserve(std::size_t bytes) {
  if (stream_ == nullptr) {
    STRATA_TRY_ASSIGN(Stream stream, backend_.create_stream(StreamRole::collective));
    stream_ = std::make_unique<Stream>(std::move(stream));
  }
  if (on_gpu_.view().bytes >= bytes) return {};
  STRATA_TRY_ASSIGN(on_gpu_, backend_.allocate(MemoryKind::device, bytes));
  STRATA_TRY_ASSIGN(on_host_, backend_.allocate(MemoryKind::pinned, bytes));
  return {};
}

Status NcclTexts::exchange(std::string_view text, std::size_t block) {
  const std::size_t all = block * static_cast<std::size_t>(comm_.size());
  STRATA_TRY(reserve(block + all));
  const BufferView host = on_host_.view(), gpu = on_gpu_.view();
  const std::uint64_t length = text.size();
  std::memcpy(host.data, &length, kLength);
  std::memcpy(host.data + kLength, text.data(), std::min(text.size(), block - kLength));
  STRATA_TRY(backend_.host_access({host.data, block, true}));
  STRATA_TRY(backend_.copy_async(gpu.part(0, block), host.part(0, block), *stream_));
  STRATA_TRY_ASSIGN(void* const handle, device_.stream_handle(*stream_));
  STRATA_TRY(comm_.queue_group([&](const NcclApi& api, void* comm) {
    return NcclOutcome{"ncclAllGather",
                       api.all_gather(gpu.data, gpu.data + block, block, kNcclInt8, comm, handle)};
  }));
  STRATA_TRY(backend_.copy_async(host.part(block, all), gpu.part(block, all), *stream_));
  STRATA_TRY(work_.queue_end(*stream_));
  STRATA_TRY(backend_.synchronize(*stream_));
  return backend_.host_access({host.data + block, all, false});
}

Result<std::vector<std::string>> NcclTexts::all_gather(std::string_view text) {
  const auto n = static_cast<std::size_t>(comm_.size());
  std::size_t block = kFirstBlock;
  STRATA_TRY(exchange(text, block));
  std::size_t longest = 0;
  for (std::size_t q = 0; q < n; ++q)
    longest = std::max<std::size_t>(longest, length_of(on_host_.view().data + block * (q + 1)));
  if (longest > block - kLength) {
    block = kLength + longest;
    STRATA_TRY(exchange(text, block));
  }
  std::vector<std::string> texts;
  for (std::size_t q = 0; q < n; ++q) {
    const std::byte* const from = on_host_.view().data + block * (q + 1);
    texts.emplace_back(reinterpret_cast<const char*>(from + kLength), length_of(from));
  }
  return texts;
}

}  // namespace strata::detail
