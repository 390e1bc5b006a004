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

StoredTensors stored_tensors(const StatePlan& plan, Payload payload, const LeftOut& left_out) {
  StoredTensors stored;
  stored.index_of.resize(plan.tensors.specs.size(), -1);
  for (const std::int32_t tensor : plan.tensors.tensor_of_param) {
    const auto t = static_cast<std::size_t>(tensor);
    if (!plan.holds(tensor, payload) || left_out.contains(plan.tensors.specs[t].name)) continue;
    TensorSpec spec{plan.tensors.specs[t].name, "F32", {}};
    const Shape& shape = plan.tensors.whole_shape(t);
    for (int i = 0; i < shape.rank; ++i) spec.shape.push_back(static_cast<std::uint64_t>(shape.dim(i)));
    stored.index_of[t] = static_cast<std::int32_t>(stored.specs.size());
    stored.specs.push_back(std::move(spec));
    stored.tensors.push_back(tensor);
  }
  return stored;
}

Digest file_digest(const Digest& header, std::span<const Digest> tensors) {
  Digester all;
  all.update(header);
  all.update(std::as_bytes(tensors));
  return all.digest();
}

Result<CheckpointFile> describe_file(Io& io, const std::string& folder, const std::string& name) {
  STRATA_TRY_ASSIGN(const auto file, SafetensorsFile::open(io, folder + "/" + name));
  STRATA_TRY_ASSIGN(const Digest header, file->header_digest());
  CheckpointFile described{name, file->file_bytes(), {}, {}};
  std::vector<Digest> tensors;
  std::vector<std::byte> piece(std::size_t{1} << 20);
  for (const SafetensorsEntry& entry : file->entries()) {
    BlockDigester digester;
    for (std::uint64_t at = 0; at < entry.bytes; at += piece.size()) {
      const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), entry.bytes - at));
      STRATA_TRY(file->read_range(entry, at, std::span(piece).first(n)));
      digester.update(std::span(piece).first(n));
    }
    tensors.push_back(digester.digest());
    described.tensors.emplace(entry.name, to_hex(tensors.back()));
  }
  described.digest = to_hex(file_digest(header, tensors));
  return described;
}

}  // namespace strata::detail
