#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <strata/session/checkpoint.h>
#include <strata/runtime/convert.h>
#include <strata/runtime/io/digest.h>
#include <strata/runtime/str.h>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_names.h"

namespace strata {
namespace {

Status check_tensors(const StatePlan& plan, const CheckpointTensors& tensors, Payload payload) {
  std::string problems;
  const SafetensorsFile& file = tensors.file();
  const std::vector<TensorSpec> wanted = detail::specs_in_layout_order(plan, payload);
  for (const TensorSpec& spec : wanted) {
    const SafetensorsEntry* entry = file.find(spec.name);
    if (entry == nullptr) {
      problems += str("\n  ", spec.name, " is missing");
    } else if (entry->shape != spec.shape || entry->dtype != spec.dtype) {
      problems +=
          str("\n  ", spec.name, " is ", entry->dtype, " [", fmt::format("{}", fmt::join(entry->shape, ", ")),
              "], the model has ", spec.dtype, " [", fmt::format("{}", fmt::join(spec.shape, ", ")), "]");
    }
  }
  if (file.entries().size() > wanted.size())
    problems += str("\n  it has ", file.entries().size(), " tensors, the model has ", wanted.size());
  if (problems.empty()) return Status::ok();
  return Status::error(
      Code::invalid,
      str(tensors.path(),
          payload == Payload::param ? " belongs to another model:"
                                    : " belongs to a run that trains other parameters, or to another model:",
          problems));
}

// Training on from a value that is not finite would fail a step later without naming the tensor. The error is
// reported only once the digests have confirmed that the value was saved this way.
Status fill_finite(Session& session, Payload payload, CheckpointTensors& tensors, const std::string& folder) {
  std::string no_number;
  Status filled = session.fill(payload, [&](const StatePiece& piece, std::span<float> values) {
    Status read = tensors.read(piece, values);
    if (const std::size_t bad = first_non_finite(values);
        read.is_ok() && no_number.empty() && bad != values.size())
      no_number = str("element ", piece.offset + static_cast<std::int64_t>(bad), " of ", piece.name, " (",
                      to_string(payload), ") is ", values[bad]);
    return read;
  });
  if (!filled.is_ok() || no_number.empty()) return filled;
  return Status::error(
      Code::diverged,
      str(folder, ": ", no_number,
          ": the run had already diverged when this was saved; resume from an earlier checkpoint"));
}

}  // namespace

Result<std::unique_ptr<CheckpointTensors>> CheckpointTensors::open(Io& io, const std::string& folder,
                                                                   const Manifest& manifest,
                                                                   Payload payload) {
  std::unique_ptr<CheckpointTensors> self(new CheckpointTensors);
  const std::string name = detail::file_of(payload);
  self->path_ = folder + "/" + name;
  const auto file = std::find_if(manifest.files.begin(), manifest.files.end(),
                                 [&](const CheckpointFile& f) { return f.name == name; });
  if (file == manifest.files.end())
    return Status::error(Code::corrupt, str(self->path_, " is not in the manifest"));
  self->digests_ = file->tensors;
  STRATA_TRY_ASSIGN(self->file_, SafetensorsFile::open(io, self->path_));
  if (self->file_->file_bytes() != file->bytes)
    return Status::error(Code::corrupt, str(self->path_, " has ", self->file_->file_bytes(),
                                            " bytes, the manifest says ", file->bytes));
  return self;
}

Status CheckpointTensors::read(const StatePiece& piece, std::span<float> values) {
  const SafetensorsEntry* entry = file_->find(piece.name);
  const auto digest = digests_.find(std::string(piece.name));
  if (entry == nullptr || digest == digests_.end())
    return Status::error(entry == nullptr ? Code::not_found : Code::corrupt,
                         str(path_, ": ", piece.name,
                             entry == nullptr ? " is not in the file" : " has no digest in the manifest"));
  if (piece.offset == 0) {
    current_ = piece.name;
    next_ = 0;
    digester_ = Digester();
  }
  if (current_ != piece.name || next_ != piece.offset)
    return Status::error(Code::invalid, str(path_, ": ", piece.name, " is read from element ", piece.offset,
                                            ", after element ", next_, " of ", current_));
  const auto bytes = std::as_writable_bytes(values);
  STRATA_TRY(file_->read_range(*entry, static_cast<std::uint64_t>(piece.offset) * sizeof(float), bytes));
  digester_.update(bytes);
  next_ += std::ssize(values);
  if (static_cast<std::uint64_t>(next_) * sizeof(float) < entry->bytes) return {};
  const std::string found = to_hex(digester_.digest());
  current_.clear();
  if (found == digest->second) return {};
  return Status::error(Code::corrupt, str(path_, ": ", piece.name, " is damaged: its digest is ", found,
                                          ", the manifest says ", digest->second));
}

Status CheckpointTensors::read(std::string_view name, std::span<float> values) {
  const auto n = std::ssize(values);
  if (const SafetensorsEntry* entry = file_->find(name);
      entry != nullptr && entry->bytes != values.size_bytes())
    return Status::error(Code::invalid, str(path_, ": ", name, " has ", entry->bytes, " bytes, ",
                                            values.size_bytes(), " were requested"));
  return read({name, 0, n}, values);
}

Result<Manifest> load_checkpoint(Session& session, Io& io, const std::string& folder) {
  STRATA_TRY_ASSIGN(Manifest manifest, read_manifest(io, folder));
  // Also checks files that are not read here.
  STRATA_TRY(detail::check_files(io, folder, manifest).annotate(folder));
  const std::span<const Payload> states = session.state_plan().states();
  std::vector<std::unique_ptr<CheckpointTensors>> files;
  for (const Payload payload : states) {
    STRATA_TRY_ASSIGN(auto tensors, CheckpointTensors::open(io, folder, manifest, payload));
    STRATA_TRY(check_tensors(session.state_plan(), *tensors, payload));
    files.push_back(std::move(tensors));
  }
  for (std::size_t p = 0; p < states.size(); ++p)
    STRATA_TRY(fill_finite(session, states[p], *files[p], folder));
  session.set_steps(manifest.step);
  if (session.state_plan().scales_loss()) session.set_loss_scale(manifest.loss_scale);
  return manifest;
}

}  // namespace strata
