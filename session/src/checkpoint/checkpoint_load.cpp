#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <strata/parallel/agree.h>
#include <strata/session/checkpoint.h>
#include <strata/runtime/convert.h>
#include <strata/runtime/io/digest.h>
#include <strata/runtime/str.h>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_names.h"
#include "checkpoint/frozen_source.h"
#include "checkpoint/part_digests.h"

namespace strata {
namespace {

// The tensors that `manifest` leaves out and the session may lack: a run that trains them cannot do without
// their states.
detail::LeftOut left_out(const StatePlan& plan, const Manifest& manifest) {
  detail::LeftOut names;
  for (const LayoutTensor& tensor : plan.tensors.specs)
    if (const auto found = manifest.frozen.find(tensor.name);
        found != manifest.frozen.end() && !(plan.trains() && tensor.group.trainable))
      names.insert(*found);
  return names;
}

// How many names are of other models, which a session that trains nothing may lack.
template <class Names, class NameOf>
std::size_t count_others(const StatePlan& plan, std::span<const std::string_view> other_models,
                         const Names& names, const NameOf& name_of) {
  if (plan.trains()) return 0;
  return static_cast<std::size_t>(std::count_if(names.begin(), names.end(), [&](const auto& of) {
    return std::any_of(other_models.begin(), other_models.end(),
                       [&](std::string_view prefix) { return name_of(of).starts_with(prefix); });
  }));
}

Status check_tensors(const StatePlan& plan, const CheckpointTensors& tensors, Payload payload,
                     const Manifest& manifest, std::span<const std::string_view> other_models) {
  std::string problems;
  const SafetensorsFile& file = tensors.file();
  const detail::LeftOut without = left_out(plan, manifest);
  const std::vector<TensorSpec> wanted = detail::stored_tensors(plan, payload, without).specs;
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
  const std::size_t n_own =
      file.entries().size() -
      count_others(plan, other_models, file.entries(),
                   [](const SafetensorsEntry& entry) -> std::string_view { return entry.name; });
  const std::size_t n_frozen =
      manifest.frozen.size() - count_others(plan, other_models, manifest.frozen,
                                            [](const auto& of) -> std::string_view { return of.first; });
  if (n_own > wanted.size()) problems += str("\n  it has ", n_own, " tensors, the model has ", wanted.size());
  if (payload == Payload::param && n_frozen > without.size())
    problems +=
        str("\n  it leaves out ", n_frozen, " frozen tensors, the model has ", without.size(), " of them");
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
class FiniteCheck {
 public:
  FiniteCheck(const std::string& folder, Payload payload) : folder_(folder), payload_(payload) {}
  void add(const StatePiece& piece, std::span<const float> values) {
    const std::size_t bad = first_non_finite(values);
    if (!found_.empty() || bad == values.size()) return;
    found_ = str("element ", piece.offset + static_cast<std::int64_t>(bad), " of ", piece.name, " (",
                 to_string(payload_), ") is ", values[bad]);
  }
  Status status() const {
    if (found_.empty()) return {};
    return Status::error(
        Code::diverged,
        str(folder_, ": ", found_,
            ": the run had already diverged when this was saved; resume from an earlier checkpoint"));
  }

 private:
  const std::string& folder_;
  const Payload payload_;
  std::string found_;
};

// Reads whole tensors of a file to check their digests: this rank every n-th one.
Status check_whole_tensors(CheckpointTensors& tensors, const StatePlan& plan, Payload payload, World& world) {
  std::vector<float> values(static_cast<std::size_t>(kMaxStatePieceElems));
  for (std::size_t t = static_cast<std::size_t>(world.rank()); t < plan.tensors.specs.size();
       t += static_cast<std::size_t>(world.size())) {
    if (!plan.holds(static_cast<std::int32_t>(t), payload)) continue;
    const std::int64_t n_elems = plan.tensors.whole_shape(t).n_elems();
    for (std::int64_t at = 0; at < n_elems; at += kMaxStatePieceElems) {
      const StatePiece piece{plan.tensors.specs[t].name, at, n_elems, static_cast<std::int32_t>(t)};
      STRATA_TRY(tensors.read(piece, std::span(values).first(static_cast<std::size_t>(
                                         std::min(kMaxStatePieceElems, n_elems - at)))));
    }
  }
  return {};
}

// Reads a piece of this rank's part of a tensor.
Status read_shared(const CheckpointTensors& tensors, const TensorPart& part, const StatePiece& piece,
                   std::span<float> values) {
  Status read;
  part.for_each_run(
      piece.offset, std::ssize(values), [&](std::int64_t whole, std::int64_t own, std::int64_t n) {
        if (read.is_ok())
          read = tensors.read_part(
              {piece.name, whole, part.whole.n_elems(), piece.tensor},
              values.subspan(static_cast<std::size_t>(own - piece.offset), static_cast<std::size_t>(n)));
      });
  return read;
}

// A checkpoint whose manifest and tensors fit a session.
struct OpenCheckpoint {
  std::string folder;
  Manifest manifest;
  std::vector<std::unique_ptr<CheckpointTensors>> files;  // indexed by state; null: it has none
  FrozenFrom frozen_from() const {
    return manifest.frozen.empty() ? FrozenFrom::checkpoint : FrozenFrom::elsewhere;
  }
};

Status fill_alone(Session& session, Payload payload, CheckpointTensors& tensors,
                  const OpenCheckpoint& checkpoint, const FrozenSource& source) {
  FiniteCheck finite(checkpoint.folder, payload);
  detail::LeftOutTensors others(checkpoint.manifest, source);
  const auto read = [&](const StatePiece& piece, std::span<float> values) -> Status {
    if (others.has(payload, piece.name)) return others.read_in_order(piece, values);
    STRATA_TRY(tensors.read(piece, values));
    finite.add(piece, values);
    // The digest of a tensor has been checked with its last piece. An error here leaves the session without
    // states.
    return piece.offset + std::ssize(values) == piece.n_elems ? finite.status() : Status::ok();
  };
  return session.fill(payload, read, checkpoint.frozen_from());
}

// Ranks that share the tensors of the model: each reads its parts.
Status fill_shared(Session& session, Payload payload, CheckpointTensors& tensors,
                   const OpenCheckpoint& checkpoint) {
  const StatePlan& plan = session.state_plan();
  STRATA_TRY(agree(session.world(), check_whole_tensors(tensors, plan, payload, *session.world())));
  FiniteCheck finite(checkpoint.folder, payload);
  Status read;
  const auto fill = [&](const StatePiece& piece, std::span<float> values) {
    if (read.is_ok())
      read = read_shared(tensors, plan.tensors.parts[static_cast<std::size_t>(piece.tensor)], piece, values);
    if (!read.is_ok()) std::fill(values.begin(), values.end(), 0.0f);
    finite.add(piece, values);
    return Status::ok();
  };
  STRATA_TRY(session.fill(payload, fill, checkpoint.frozen_from()));
  STRATA_TRY(agree(session.world(), read));
  return agree(session.world(), finite.status());
}

// Each rank reads what it holds and digests its part of that. A failed read is returned at the end: until
// then the rank takes part in what the ranks do together.
Status fill_together(Session& session, Payload payload, const CheckpointTensors& tensors,
                     const OpenCheckpoint& checkpoint, const FrozenSource& source) {
  const StatePlan& plan = session.state_plan();
  detail::PartDigests digests(plan, session.world());
  FiniteCheck finite(checkpoint.folder, payload);
  const detail::LeftOutTensors others(checkpoint.manifest, source);
  Status read;
  const auto fill = [&](const StatePiece& piece, std::span<float> values) {
    const bool is_other = others.has(payload, piece.name);
    if (read.is_ok()) read = is_other ? others.read(piece, values) : tensors.read_part(piece, values);
    if (!read.is_ok()) std::fill(values.begin(), values.end(), 0.0f);
    if (!is_other) finite.add(piece, values);
    digests.add(piece, values);
    return Status::ok();
  };
  STRATA_TRY(session.fill(payload, fill, checkpoint.frozen_from()));
  STRATA_TRY(digests.finish());
  STRATA_TRY(agree(session.world(), read));
  for (std::int32_t tensor = 0; const LayoutTensor& spec : plan.tensors.specs) {
    const Digest& digest = digests.of(tensor);
    if (plan.holds(tensor++, payload))
      STRATA_TRY(others.has(payload, spec.name) ? others.check(spec.name, digest)
                                                : tensors.check(spec.name, digest));
  }
  return agree(session.world(), finite.status());
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
  self->in_blocks_ = manifest.version >= Manifest::kBlockDigests;
  STRATA_TRY_ASSIGN(self->file_, SafetensorsFile::open(io, self->path_));
  if (self->file_->file_bytes() != file->bytes)
    return Status::error(Code::corrupt, str(self->path_, " has ", self->file_->file_bytes(),
                                            " bytes, the manifest says ", file->bytes));
  return self;
}

Result<const SafetensorsEntry*> CheckpointTensors::find(std::string_view name) const {
  const SafetensorsEntry* entry = file_->find(name);
  if (entry == nullptr) return Status::error(Code::not_found, str(path_, ": ", name, " is not in the file"));
  if (!digests_.contains(std::string(name)))
    return Status::error(Code::corrupt, str(path_, ": ", name, " has no digest in the manifest"));
  return entry;
}

Status CheckpointTensors::read_part(const StatePiece& piece, std::span<float> values) const {
  STRATA_TRY_ASSIGN(const SafetensorsEntry* const entry, find(piece.name));
  return file_->read_range(*entry, static_cast<std::uint64_t>(piece.offset) * sizeof(float),
                           std::as_writable_bytes(values));
}

Status CheckpointTensors::check(std::string_view name, const Digest& digest) const {
  STRATA_TRY(find(name).status());
  const std::string found = to_hex(digest), &want = digests_.find(std::string(name))->second;
  if (found == want) return {};
  return Status::error(Code::corrupt, str(path_, ": ", name, " is damaged: its digest is ", found,
                                          ", the manifest says ", want));
}

Status CheckpointTensors::read(const StatePiece& piece, std::span<float> values) {
  STRATA_TRY_ASSIGN(const SafetensorsEntry* const entry, find(piece.name));
  if (piece.offset == 0) {
    current_ = piece.name;
    next_ = 0;
    digester_ = Digester();
    (void)block_digester_.take();
  }
  if (current_ != piece.name || next_ != piece.offset)
    return Status::error(Code::invalid, str(path_, ": ", piece.name, " is read from element ", piece.offset,
                                            ", after element ", next_, " of ", current_));
  STRATA_TRY(read_part(piece, values));
  if (in_blocks_)
    block_digester_.update(std::as_bytes(values));
  else
    digester_.update(std::as_bytes(values));
  next_ += std::ssize(values);
  if (static_cast<std::uint64_t>(next_) * sizeof(float) < entry->bytes) return {};
  current_.clear();
  return check(piece.name, in_blocks_ ? block_digester_.digest() : digester_.digest());
}

Status CheckpointTensors::read(std::string_view name, std::span<float> values) {
  const auto n = std::ssize(values);
  if (const SafetensorsEntry* entry = file_->find(name);
      entry != nullptr && entry->bytes != values.size_bytes())
    return Status::error(Code::invalid, str(path_, ": ", name, " has ", entry->bytes, " bytes, ",
                                            values.size_bytes(), " were requested"));
  return read({name, 0, n}, values);
}

namespace {

// A run with one step count for all parameters cannot go on from several, whose bias corrections differ.
Status check_param_steps(const Session& session, const Manifest& manifest) {
  if (manifest.param_steps.empty() || !session.param_steps().empty()) return {};
  const auto& [name, steps] = *manifest.param_steps.begin();
  return Status::error(Code::unsupported,
                       str(name, " was updated in ", steps, " of ", manifest.step,
                           " steps; only a trainer's session counts steps for each parameter"));
}

// A checkpoint has the trainees of the session, or is of a run with one.
Status check_trainees(const Session& session, const Manifest& manifest) {
  std::vector<std::string> own, there;
  for (const TraineeOptions& trainee : session.state_plan().options.trainees) own.push_back(trainee.name);
  if (!session.state_plan().trains()) return {};  // it has none, and needs none
  if (own.size() < 2) own.clear();
  for (const auto& [name, trainee] : manifest.trainees) there.push_back(name);
  std::sort(own.begin(), own.end());
  if (own == there) return {};
  return Status::error(Code::invalid,
                       fmt::format("it has the steps of {} trainees ({}), the run has {} ({})", there.size(),
                                   fmt::join(there, ", "), own.size(), fmt::join(own, ", ")));
}

void set_trainees(Session& session, const Manifest& manifest) {
  const std::vector<TraineeOptions>& trainees = session.state_plan().options.trainees;
  for (std::size_t i = 0; i < trainees.size() && trainees.size() > 1; ++i) {
    const Manifest::Trainee& of = manifest.trainees.at(trainees[i].name);
    session.set_steps(of.step, static_cast<std::int32_t>(i));
    if (session.state_plan().scales_loss())
      session.set_loss_scale(of.loss_scale, static_cast<std::int32_t>(i));
  }
}

// The steps of each parameter by registration order, from the counts that differ from the checkpoint's step.
std::vector<std::int64_t> param_steps(const StatePlan& plan, const Manifest& manifest) {
  std::vector<std::int64_t> steps;
  for (const LayoutTensor& tensor : plan.tensors.specs) {
    const auto own = manifest.param_steps.find(tensor.name);
    steps.push_back(own == manifest.param_steps.end() ? manifest.step : own->second);
  }
  return steps;
}

bool has_file(const Manifest& manifest, Payload payload) {
  return std::any_of(
      manifest.files.begin(), manifest.files.end(),
      [name = detail::file_of(payload)](const CheckpointFile& file) { return file.name == name; });
}

Result<OpenCheckpoint> open_checkpoint(const Session& session, Io& io, const std::string& folder,
                                       const FrozenSource& frozen,
                                       std::span<const std::string_view> other_models) {
  OpenCheckpoint checkpoint{folder, {}, {}};
  STRATA_TRY_ASSIGN(checkpoint.manifest, read_manifest(io, folder));
  STRATA_TRY(detail::LeftOutTensors(checkpoint.manifest, frozen).check_source(folder));
  // Also checks files that are not read here.
  STRATA_TRY(detail::check_files(io, folder, checkpoint.manifest).annotate(folder));
  if (session.world() != nullptr && checkpoint.manifest.version < Manifest::kBlockDigests)
    return Status::error(Code::unsupported,
                         str(folder, ": its version is ", checkpoint.manifest.version,
                             ", whose digests several ranks cannot check; resume it with one rank and save"));
  STRATA_TRY(check_param_steps(session, checkpoint.manifest).annotate(folder));
  STRATA_TRY(check_trainees(session, checkpoint.manifest).annotate(folder));
  for (const Payload payload : session.state_plan().states()) {
    if (payload == Payload::ema && !has_file(checkpoint.manifest, payload)) {
      checkpoint.files.push_back(nullptr);  // the average begins with these parameters
      continue;
    }
    STRATA_TRY_ASSIGN(auto tensors, CheckpointTensors::open(io, folder, checkpoint.manifest, payload));
    STRATA_TRY(check_tensors(session.state_plan(), *tensors, payload, checkpoint.manifest, other_models));
    checkpoint.files.push_back(std::move(tensors));
  }
  return checkpoint;
}

}  // namespace

Result<Manifest> load_checkpoint(Session& session, Io& io, const std::string& folder,
                                 const FrozenSource& frozen, std::span<const std::string_view> other_models) {
  Result<OpenCheckpoint> checkpoint = open_checkpoint(session, io, folder, frozen, other_models);
  STRATA_TRY(agree(session.world(), checkpoint.status()));
  for (std::size_t p = 0; p < checkpoint->files.size(); ++p) {
    if (checkpoint->files[p] == nullptr) continue;
    const Payload payload = session.state_plan().states()[p];
    CheckpointTensors& tensors = *checkpoint->files[p];
    if (!session.state_plan().tensors.parts.empty())
      STRATA_TRY(fill_shared(session, payload, tensors, *checkpoint));
    else
      STRATA_TRY(session.world() == nullptr ? fill_alone(session, payload, tensors, *checkpoint, frozen)
                                            : fill_together(session, payload, tensors, *checkpoint, frozen));
  }
  session.set_steps(checkpoint->manifest.step);
  if (!session.param_steps().empty())
    session.set_param_steps(param_steps(session.state_plan(), checkpoint->manifest));
  if (session.state_plan().scales_loss()) session.set_loss_scale(checkpoint->manifest.loss_scale);
  set_trainees(session, checkpoint->manifest);
  return std::move(checkpoint->manifest);
}

}  // namespace strata
