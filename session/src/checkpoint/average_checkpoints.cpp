#include <strata/session/average_checkpoints.h>

#include <algorithm>
#include <memory>
#include <vector>

#include <strata/runtime/io/safetensors.h>
#include <strata/runtime/str.h>
#include <strata/session/checkpoint.h>

namespace strata {
namespace {

/// A checkpoint that is averaged.
struct Part {
  std::string folder;
  Manifest manifest;
  std::unique_ptr<CheckpointTensors> params;
};

Result<Part> open_part(Io& io, const std::string& folder) {
  Part part{folder, {}, nullptr};
  STRATA_TRY_ASSIGN(part.manifest, read_manifest(io, folder));
  STRATA_TRY_ASSIGN(part.params, CheckpointTensors::open(io, folder, part.manifest, Payload::param));
  return part;
}

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  std::string text;
  for (const std::uint64_t dim : shape) text += str(text.empty() ? "" : " x ", dim);
  return text.empty() ? "one value" : text;
}

// The parameters of both have to be the same tensors of one model.
Status check_same_tensors(const Part& first, const Part& other) {
  const auto differ = [&](const std::string& what) {
    return Status::error(Code::invalid,
                         str(first.folder, " and ", other.folder, " cannot be averaged: ", what));
  };
  const auto& entries = first.params->file().entries();
  for (const SafetensorsEntry& entry : entries) {
    const SafetensorsEntry* const same = other.params->file().find(entry.name);
    if (same == nullptr) return differ(str("only the first has the tensor ", entry.name));
    if (same->shape != entry.shape)
      return differ(str(entry.name, " is ", shape_text(entry.shape), " in the first and ",
                        shape_text(same->shape), " in the second"));
  }
  if (other.params->file().entries().size() != entries.size())
    return differ(str("the first has ", entries.size(), " tensors, the second ",
                      other.params->file().entries().size()));
  if (first.manifest.frozen != other.manifest.frozen) return differ("their frozen tensors differ");
  return {};
}

std::vector<TensorSpec> specs_of(const SafetensorsFile& file) {
  std::vector<TensorSpec> specs;
  for (const SafetensorsEntry& entry : file.entries()) specs.push_back({entry.name, "F32", entry.shape});
  return specs;
}

using FillTensor = std::function<Status(std::string_view name, std::span<float> values)>;

// A file of the tensors of `like`, whose values come from `fill`.
Status write_tensors(Io& io, const std::string& path, const SafetensorsFile& like, const FillTensor& fill) {
  STRATA_TRY_ASSIGN(const auto writer, SafetensorsWriter::create(io, path, specs_of(like), like.metadata()));
  std::vector<float> values;
  for (const SafetensorsEntry& entry : like.entries()) {
    values.resize(static_cast<std::size_t>(entry.bytes) / sizeof(float));
    STRATA_TRY(fill(entry.name, values));
    STRATA_TRY(writer->append(std::as_bytes(std::span(values))));
  }
  return writer->finish();
}

/// Fills tensors with the means of those of the parts.
class Mean {
 public:
  explicit Mean(std::vector<Part>& parts) : parts_(parts) {}
  Status operator()(std::string_view name, std::span<float> values) {
    sums_.assign(values.size(), 0.0);
    for (Part& part : parts_) {
      STRATA_TRY(part.params->read(name, values));
      for (std::size_t i = 0; i < values.size(); ++i) sums_[i] += static_cast<double>(values[i]);
    }
    const auto n = static_cast<double>(parts_.size());
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(sums_[i] / n);
    return {};
  }

 private:
  std::vector<Part>& parts_;
  std::vector<double> sums_;
};

}  // namespace

Result<std::string> average_checkpoints(Io& io, std::span<const std::string> checkpoints,
                                        const std::string& dir) {
  if (checkpoints.empty()) return Status::error(Code::invalid, "there are no checkpoints to average");
  std::vector<Part> parts;
  for (const std::string& folder : checkpoints) {
    STRATA_TRY_ASSIGN(Part part, open_part(io, folder));
    parts.push_back(std::move(part));
    STRATA_TRY(check_same_tensors(parts.front(), parts.back()));
  }
  const Part& last = parts.back();
  std::vector<Payload> payloads;
  for (const Payload payload : kCheckpointPayloads)
    if (io.exists(payload_file(last.folder, payload))) payloads.push_back(payload);
  STRATA_TRY_ASSIGN(const TaskState task, read_task_state(io, last.folder, last.manifest));
  STRATA_TRY(io.make_dirs(dir));
  return write_checkpoint(
      io, dir, last.manifest, payloads,
      [&](Payload payload, const std::string& path) -> Status {
        if (payload == Payload::param) return write_tensors(io, path, last.params->file(), Mean(parts));
        STRATA_TRY_ASSIGN(const auto states,
                          CheckpointTensors::open(io, last.folder, last.manifest, payload));
        return write_tensors(io, path, states->file(), [&](std::string_view name, std::span<float> values) {
          return states->read(name, values);
        });
      },
      task);
}

}  // namespace strata
