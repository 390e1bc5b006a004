#include "checkpoint/checkpoint_files.h"

#include <algorithm>

#include <strata/runtime/str.h>

#include "checkpoint/checkpoint_names.h"

namespace strata::detail {

Result<std::vector<StepFolder>> step_folders(Io& io, const std::string& dir) {
  STRATA_TRY_ASSIGN(const std::vector<std::string> names, io.list(dir));
  std::vector<StepFolder> found;
  for (const std::string& name : names)
    if (const auto step = step_of(name)) found.push_back({*step, dir + "/" + name});
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  return found;
}

Status check_files(Io& io, const std::string& folder, const Manifest& manifest) {
  for (const CheckpointFile& file : manifest.files) {
    STRATA_TRY_ASSIGN(const auto opened, io.open(folder + "/" + file.name, OpenMode::read));
    STRATA_TRY_ASSIGN(const std::uint64_t size, opened->size());
    if (size != file.bytes)
      return Status::error(Code::corrupt,
                           str(file.name, " has ", size, " bytes, the manifest says ", file.bytes));
  }
  return {};
}

std::vector<TensorSpec> specs_in_layout_order(const StatePlan& plan, Payload payload) {
  std::vector<TensorSpec> specs;
  for (const ChunkInfo& chunk : plan.layout.chunks())
    for (const std::int32_t tensor : chunk.tensors) {
      if (!plan.holds(tensor, payload)) continue;
      TensorSpec spec{plan.tensors.specs[static_cast<std::size_t>(tensor)].name, "F32", {}};
      const Shape& shape = plan.tensors.shapes[static_cast<std::size_t>(tensor)];
      for (int i = 0; i < shape.rank; ++i) spec.shape.push_back(static_cast<std::uint64_t>(shape.dim(i)));
      specs.push_back(std::move(spec));
    }
  return specs;
}

}  // namespace strata::detail
