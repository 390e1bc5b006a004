// The values that a trainer gives a session: the addresses of its parameters, their first values, and what it
// writes later.
#include <strata/session/trainer_session.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <strata/runtime/convert.h>
#include <strata/runtime/str.h>

#include "trainer/refuse_param.h"
#include "trainer/written_params.h"

namespace strata {
namespace {

Status check_addresses(const StatePlan& plan, std::span<void* const> values) {
  const std::vector<LayoutTensor>& params = plan.tensors.specs;
  if (values.size() != params.size())
    return Status::error(Code::invalid,
                         str("there are ", values.size(), " addresses for ", params.size(), " parameters"));
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i] == nullptr)
      return Status::error(Code::invalid, str("the address of parameter '", params[i].name, "' is null"));
  return {};
}

}  // namespace

Status TrainerSession::bind(std::span<void* const> values) {
  if (holds_params())
    return Status::error(Code::invalid, "the session holds the parameters, so they have no addresses");
  if (!values.empty()) STRATA_TRY(check_addresses(state_plan(), values));
  std::vector<std::byte*> params;
  for (void* const value : values) params.push_back(static_cast<std::byte*>(value));
  context().set_trainer_params(std::move(params));
  return {};
}

Status TrainerSession::set_initial(std::span<void* const> values) {
  STRATA_TRY(check_addresses(state_plan(), values));
  if (!holds_params()) STRATA_TRY(bind(values));
  const ChunkLayout& layout = state_plan().layout;
  bool fills_params = holds_params();  // or the bits that the trainer's lack
  for (ChunkId chunk = 0; chunk < layout.n_chunks(); ++chunk)
    fills_params = fills_params || layout.has(chunk, Payload::master);
  const FillState initial = [&](const StatePiece& piece, std::span<float> into) {
    const auto tensor = static_cast<std::size_t>(piece.tensor);
    const DType dtype = state_plan().tensors.specs[tensor].group.compute;
    const std::byte* const from = static_cast<const std::byte*>(values[tensor]) +
                                  static_cast<std::size_t>(piece.offset) * size_of(dtype);
    return widen_to_f32(dtype, {from, into.size() * size_of(dtype)}, into);
  };
  const FillState zeros = [](const StatePiece&, std::span<float> into) {
    std::fill(into.begin(), into.end(), 0.0f);
    return Status::ok();
  };
  for (const Payload payload : state_plan().states())
    if (payload != Payload::param || fills_params)
      STRATA_TRY(fill(payload, payload == Payload::param ? initial : zeros));
  return context().chunks().status();
}

Status TrainerSession::write(std::span<const ParamSource> sources) {
  STRATA_TRY(machine().broken());
  for (const ParamSource& source : sources) {
    STRATA_TRY(check_param(source.param));
    if (source.from == nullptr)
      return detail::refuse_param(state_plan(), source.param, "is to be read from a null address");
  }
  // One pass over the chunks, however many of the parameters are in one.
  const std::vector<LayoutTensor>& params = state_plan().tensors.specs;
  std::vector<std::string> names;
  std::map<std::int32_t, const std::byte*> written;
  for (const ParamSource& source : sources) {
    names.push_back(params[static_cast<std::size_t>(source.param)].name);
    written[source.param] = static_cast<const std::byte*>(source.from);
  }
  return edit_params(names, [&](const StatePiece& piece, std::span<float> masters) {
    const DType dtype = params[static_cast<std::size_t>(piece.tensor)].group.compute;
    return detail::take_written(written.at(piece.tensor), dtype, piece.offset, masters);
  });
}

}  // namespace strata
