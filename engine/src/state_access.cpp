#include "state_access.h"

#include <algorithm>

#include <strata/runtime/rng.h>
#include <strata/runtime/str.h>

namespace strata {
namespace {

// What a state ends in after the host touched it: its home, and no copy in passing.
Status put_away(ChunkManager& chunks, CopyKey key) {
  STRATA_TRY(chunks.send_home(key));
  return chunks.placement().home(key) == Tier::device ? chunks.evict(key, Tier::pinned) : Status::ok();
}

}  // namespace

template <class OneTensor>
Status StateAccess::fill_chunks(Payload payload, const OneTensor& one) {
  ChunkManager& chunks = *machine_.chunks;
  for (ChunkId chunk = 0; chunk < machine_.plan.layout.n_chunks(); ++chunk) {
    {
      STRATA_TRY_ASSIGN(const ChunkPin pin,
                        chunks.pin({chunk, payload}, Tier::pinned, Intent::overwrite, machine_.cpu));
      STRATA_TRY(machine_.backend.synchronize(machine_.cpu));
      STRATA_TRY(machine_.backend.host_access({pin.view().data, pin.view().bytes, true}));
      if (!machine_.dry())
        for (const std::int32_t tensor : machine_.plan.layout.chunk(chunk).tensors) {
          const Slice& slice = machine_.plan.layout.slice(tensor);
          STRATA_TRY(one(tensor, std::span<float>(reinterpret_cast<float*>(pin.view().data) + slice.offset,
                                                  static_cast<std::size_t>(slice.n_elems))));
        }
    }
    STRATA_TRY(put_away(chunks, {chunk, payload}));
  }
  return chunks.status();
}

Status StateAccess::initialize(std::uint64_t seed) {
  const RunPlan& plan = machine_.plan;
  STRATA_TRY(fill_chunks(Payload::param, [&](std::int32_t tensor, std::span<float> values) {
    const Init& init = plan.init_of_tensor[static_cast<std::size_t>(tensor)];
    // The stream is the parameter's place in the program, so the layout cannot change what it draws.
    const Rng rng(seed,
                  static_cast<std::uint64_t>(plan.tensors.param_of_tensor[static_cast<std::size_t>(tensor)]));
    machine_.pool.parallel_for(
        static_cast<std::int64_t>((values.size() + Block::kBlockElems - 1) / Block::kBlockElems),
        [&](std::int64_t block) {
          const std::size_t begin = static_cast<std::size_t>(block * Block::kBlockElems);
          const std::size_t end =
              std::min(values.size(), begin + static_cast<std::size_t>(Block::kBlockElems));
          for (std::size_t i = begin; i < end; ++i)
            values[i] = init.std == 0 ? init.mean : init.mean + init.std * rng.normal(i);
        });
    return Status::ok();
  }));
  for (const Payload payload : plan.states().subspan(1))
    STRATA_TRY(fill_chunks(payload, [](std::int32_t, std::span<float> values) {
      std::fill(values.begin(), values.end(), 0.0f);
      return Status::ok();
    }));
  return Status::ok();
}

Status StateAccess::fill(Payload payload, const Engine::Fill& fill) {
  return fill_chunks(payload, [&](std::int32_t tensor, std::span<float> values) {
    return fill(machine_.plan.tensors.specs[static_cast<std::size_t>(tensor)].name, values);
  });
}

Status StateAccess::visit(Payload payload, const Engine::Visit& visit) {
  ChunkManager& chunks = *machine_.chunks;
  for (ChunkId chunk = 0; chunk < machine_.plan.layout.n_chunks(); ++chunk) {
    const CopyKey key{chunk, payload};
    {
      STRATA_TRY_ASSIGN(const ChunkPin pin, chunks.pin(key, Tier::pinned, Intent::read, machine_.cpu));
      STRATA_TRY(machine_.backend.synchronize(machine_.cpu));
      STRATA_TRY(machine_.backend.host_access({pin.view().data, pin.view().bytes, false}));
      if (!machine_.dry())
        for (const std::int32_t tensor : machine_.plan.layout.chunk(chunk).tensors) {
          const Slice& slice = machine_.plan.layout.slice(tensor);
          STRATA_TRY(
              visit(machine_.plan.tensors.specs[static_cast<std::size_t>(tensor)].name,
                    std::span<const float>(reinterpret_cast<const float*>(pin.view().data) + slice.offset,
                                           static_cast<std::size_t>(slice.n_elems))));
        }
    }
    if (chunks.placement().home(key) == Tier::device) STRATA_TRY(chunks.evict(key, Tier::pinned));
  }
  return chunks.status();
}

}  // namespace strata
