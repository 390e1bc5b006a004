#include "plan/check_programs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <span>
#include <string_view>

#include <strata/cpuopt/optimizer.h>
#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/ops.h>
#include <strata/runtime/plural.h>
#include <strata/runtime/str.h>
#include <strata/session/loss_scale.h>

namespace strata::detail {
namespace {

std::vector<const NamedProgram*> present(const ProgramSet& programs) {
  constexpr std::array kOrder = {ProgramRole::train,   ProgramRole::eval,    ProgramRole::infer,
                                 ProgramRole::refresh, ProgramRole::forward, ProgramRole::prefill,
                                 ProgramRole::decode};
  std::vector<const NamedProgram*> found;
  for (const ProgramRole role : kOrder)
    for (const NamedProgram& program : programs.list())
      if (program.role == role && !program.program.code.empty()) found.push_back(&program);
  return found;
}

Status check_names(std::span<const NamedProgram* const> programs) {
  if (programs.empty()) return Status::error(Code::invalid, "the run has no program");
  for (std::size_t i = 0; i < programs.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      if (programs[i]->name == programs[j]->name)
        return Status::error(Code::invalid, str("two programs of the run are named ", programs[i]->name));
      const ProgramRole role = programs[i]->role;
      if (programs[j]->role == role && role == ProgramRole::refresh)
        return Status::error(Code::invalid,
                             str("the programs ", programs[j]->name, " and ", programs[i]->name, " both ",
                                 to_string(role), "; a run has at most one such program"));
    }
  return {};
}

Status check_inputs(std::span<const NamedProgram* const> programs) {
  for (const NamedProgram* named : programs)
    for (const ValueId id : named->program.inputs)
      if (const ValueInfo& input = named->program.value(id); size_of(input.dtype) != 4)
        return Status::error(Code::invalid, str("input ", input.name, " of program ", named->name, " is ",
                                                to_string(input.dtype), "; inputs have 4 bytes per element"));
  return {};
}

// The inputs that the engine itself fills, and the output that it reads, in programs of a role. Other inputs
// are up to the BatchSource.
struct Ports {
  std::span<const std::string_view> inputs;
  std::string_view output;
};
constexpr std::array<std::string_view, 4> kSequencePorts = {"tokens", "positions", "slots", "logit_indices"};

Ports ports_of(ProgramRole role) noexcept {
  switch (role) {
    case ProgramRole::train:
    case ProgramRole::eval:
      return {{}, "loss"};
    case ProgramRole::infer:
      return {std::span(kSequencePorts).first(1), "logits"};
    case ProgramRole::prefill:
    case ProgramRole::decode:
      return {kSequencePorts, "logits"};
    case ProgramRole::refresh:
    case ProgramRole::forward:
      break;
  }
  return {};
}

const ValueInfo* find_port(const Program& program, std::span<const ValueId> among, std::string_view name) {
  const auto found = std::find_if(among.begin(), among.end(),
                                  [&](const ValueId id) { return program.value(id).name == name; });
  return found == among.end() ? nullptr : &program.value(*found);
}

Status missing_port(const NamedProgram& named, std::string_view kind, std::string_view name) {
  return Status::error(Code::invalid,
                       str("program ", named.name, " has no ", kind, " named ", name,
                           ", which a program with the role ", to_string(named.role), " needs"));
}

// The engine reads losses and logits as f32, and passes on other outputs, which may be counts.
Status check_output(const NamedProgram& named, std::string_view name) {
  const ValueInfo* const output = find_port(named.program, named.program.outputs, name);
  if (output == nullptr) return missing_port(named, "output", name);
  const bool is_read = name == "loss" || name == "logits";
  const bool has_dtype = output->dtype == DType::f32 || (output->dtype == DType::i32 && !is_read);
  if (has_dtype && output->shape.rank > 0) return {};
  return Status::error(Code::invalid, str("output ", name, " of program ", named.name, " with the role ",
                                          to_string(named.role), " is ", to_string(output->dtype), " ",
                                          to_string(output->shape), "; it must be f32",
                                          is_read ? "" : " or i32", ", of rank 1 at least"));
}

// All outputs are read back.
Status check_outputs(const NamedProgram& named) {
  if (named.program.outputs.empty())
    return Status::error(Code::invalid, str("program ", named.name, " with the role ", to_string(named.role),
                                            " has no outputs"));
  for (const ValueId id : named.program.outputs)
    STRATA_TRY(check_output(named, named.program.value(id).name));
  return {};
}

Status check_ports(const NamedProgram& named) {
  if (named.role == ProgramRole::refresh) return {};  // it has results, see check_refresh()
  if (named.role != ProgramRole::prefill && named.role != ProgramRole::decode)
    STRATA_TRY(check_outputs(named));
  if (named.role == ProgramRole::forward) return {};
  const Ports ports = ports_of(named.role);
  for (const std::string_view name : ports.inputs)
    if (find_port(named.program, named.program.inputs, name) == nullptr)
      return missing_port(named, "input", name);
  for (std::int32_t k = 0; k < named.program.micro_batches; ++k)
    STRATA_TRY(check_output(named, name_in_micro_batch(ports.output, k)));
  return {};
}

Status check_message(const NamedProgram& named, const MessageAttrs& attrs, const ModelParallel& model) {
  const auto axis = static_cast<MeshAxis>(attrs.axis);
  if (attrs.peer >= 0 && attrs.peer < model.size(axis) && attrs.peer != model.place(axis)) return {};
  return Status::error(Code::invalid, str("program ", named.name, " exchanges messages with rank ",
                                          attrs.peer, " along ", to_string(axis), ", but this is rank ",
                                          model.place(axis), " of ", model.size(axis)));
}

// Collectives are exchanged among the ranks of the run.
Status check_collectives(const NamedProgram& named, const DataParallel& copies, const ModelParallel& model) {
  for (const Instr& instr : named.program.code) {
    if (is_message(instr.op)) STRATA_TRY(check_message(named, instr.attrs.as<MessageAttrs>(), model));
    if (!is_collective(instr.op)) continue;
    const auto& attrs = instr.attrs.as<CollectiveAttrs>();
    const auto axis = static_cast<MeshAxis>(attrs.axis);
    const bool over_copies = axis == MeshAxis::dp;
    const std::int32_t ranks = over_copies ? copies.ranks : model.size(axis),
                       rank = over_copies ? copies.rank : model.place(axis);
    if (attrs.ranks != ranks || attrs.rank != rank)
      return Status::error(Code::invalid,
                           str("program ", named.name, " is that of rank ", attrs.rank, " of ", attrs.ranks,
                               " along ", to_string(axis), ", but this is rank ", rank, " of ", ranks));
    if (instr.accumulate != 0 && instr.op != Op::accumulate_over_ranks)
      return Status::error(Code::unsupported,
                           str("program ", named.name, " adds the results of several collectives (",
                               op_name(instr.op), "); micro-batches must run depth first"));
  }
  return {};
}

// It runs between steps, on all micro-batches of one, and changes nothing by itself.
Status check_refresh(const NamedProgram& named, bool trains, const SessionOptions& options) {
  const Program& program = named.program;
  const auto refuse = [&](const auto&... why) {
    return Status::error(Code::invalid,
                         str("program ", named.name, " with the role ", to_string(named.role), " ", why...));
  };
  if (!trains) return refuse("needs a program that trains, and no second one");
  if (const std::int32_t ranks = options.ranks.ranks * options.model.ranks(); ranks > 1)
    return Status::error(
        Code::unsupported,
        str("program ", named.name, " with the role refresh needs a run with one rank; there are ", ranks));
  if (program.micro_batches != options.grad_accum)
    return refuse("covers ", plural(program.micro_batches, "micro-batch"), ", but a step has ",
                  options.grad_accum);
  if (program.results.empty()) return refuse("has no results");
  for (const ValueId id : program.results)
    if (program.value(id).dtype != DType::f32)
      return refuse("has the result ", program.value(id).name, " in ", to_string(program.value(id).dtype),
                    "; it must be f32");
  for (const ParamInfo& param : program.params)
    if (param.grad != kNoValue) return refuse("computes a gradient of parameter ", param.name);
  if (has_op(program, Op::store_begin)) return refuse("stores activations on the slow tier");
  return {};
}

// A program adds up the gradients of all ranks, or the session does.
Status check_sums(const Program& train, const DataParallel& ranks) {
  const bool over_ranks = has_op(train, Op::accumulate_over_ranks);
  const bool has_gradients = std::any_of(train.params.begin(), train.params.end(),
                                         [](const ParamInfo& param) { return param.grad != kNoValue; });
  if (over_ranks == ranks.sums_in_program() || (!over_ranks && !has_gradients)) return {};
  return Status::error(Code::invalid, str("the training program ", over_ranks ? "adds" : "does not add",
                                          " gradients up over ranks, but the GradientReduce of the run is ",
                                          over_ranks ? "not " : "", "in_program"));
}

Status check_trained(const NamedProgram& named) {
  for (const ParamInfo& param : named.program.params)
    if (param.trainable && param.grad == kNoValue && !param.part.is_elsewhere)
      return Status::error(Code::invalid, str("program ", named.name,
                                              ", which trains, has no gradient of parameter ", param.name));
  return {};
}

Status check_train(const NamedProgram& named, const SessionOptions& options) {
  const Program& train = named.program;
  const std::int32_t of_rank = micro_batches_of(named, options) / options.ranks.ranks;
  if (train.micro_batches != 1 && train.micro_batches != of_rank)
    return Status::error(
        Code::invalid, str("program ", named.name, " covers ", plural(train.micro_batches, "micro-batch"),
                           ", but a step has ", of_rank, " on each rank; it must cover one or all of them"));
  if (train.micro_batches != 1 && options.ranks.ranks > 1 && options.ranks.reduce == GradientReduce::each)
    return Status::error(
        Code::invalid,
        str("program ", named.name, " sums the gradients of ", plural(train.micro_batches, "micro-batch"),
            ", but parallel.reduce=each adds each of them; use parallel.reduce=once"));
  STRATA_TRY(check_sums(train, options.ranks));
  if (!(named.weight > 0) || !std::isfinite(named.weight))
    return Status::error(Code::invalid, str("the loss of program ", named.name, " has the weight ",
                                            named.weight, "; it must be above 0"));
  return check_trained(named);
}

std::vector<std::string_view> trained_by(const NamedProgram& named) {
  std::vector<std::string_view> names;
  for (const ParamInfo& param : named.program.params)
    if (param.trainable) names.push_back(param.name);
  std::sort(names.begin(), names.end());
  return names;
}

// Programs of one trainee train the same parameters, those of several have none in common.
Status check_trainees(std::span<const NamedProgram* const> train, const SessionOptions& options) {
  if (train.size() > 1)
    if (const std::int32_t ranks = options.ranks.ranks * options.model.ranks(); ranks > 1)
      return Status::error(Code::unsupported, str("a run with ", train.size(),
                                                  " programs that train needs one rank; there are ", ranks));
  for (const TraineeOptions& given : options.trainees)
    if (std::none_of(train.begin(), train.end(),
                     [&](const NamedProgram* named) { return named->trainee == given.name; }))
      return Status::error(Code::invalid, str("there are options of trainee '", given.name,
                                              "', but none of the run's programs trains it"));
  for (std::size_t i = 0; i < train.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      const std::vector<std::string_view> a = trained_by(*train[j]), b = trained_by(*train[i]);
      std::vector<std::string_view> both;
      std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
      const bool is_one = train[i]->trainee == train[j]->trainee;
      if (is_one ? a == b : both.empty()) continue;
      return Status::error(
          Code::invalid,
          is_one
              ? str("programs ", train[j]->name, " and ", train[i]->name, " of trainee ", train[i]->trainee,
                    " train ", a.size(), " and ", b.size(), " parameters; they must train the same ones")
              : str("parameter ", both.front(), " is trained by ", train[j]->name, " and by ", train[i]->name,
                    ", which are programs of different trainees"));
    }
  return {};
}

// In f16 the loss is scaled through its divisor, which the engine fills.
Status check_loss_scale(std::span<const NamedProgram* const> trained, const SessionOptions& options) {
  if (!LossScale::is_valid(options.loss_scale))
    return Status::error(Code::invalid, str("optim.loss_scale is ", options.loss_scale,
                                            "; it must be a power of two from 1 to ", LossScale::kMax));
  for (const NamedProgram* named : trained) {
    const Program& train = named->program;
    const bool has_divisor = train.find("divisor") != kNoValue;
    if (!has_divisor && train.value(train.params.front().value).dtype == DType::f16)
      return Status::error(Code::unsupported, str("program ", named->name,
                                                  " computes in f16 and has no input divisor to scale its "
                                                  "loss by"));
    if (!has_divisor && named->weight != 1)
      return Status::error(Code::unsupported, str("the loss of program ", named->name, " has the weight ",
                                                  named->weight, ", but no input divisor to apply it by"));
  }
  return {};
}

// Prefill and decode share the cache, so their states must be equal.
Status check_states(const NamedProgram* prefill, const NamedProgram* decode) {
  const auto list = [](const NamedProgram* named) {
    std::string text;
    if (named != nullptr)
      for (const ValueId id : named->program.states) {
        const ValueInfo& state = named->program.value(id);
        text += str(" ", state.name, to_string(state.shape),
                    state.dtype == DType::f32 ? "" : to_string(state.dtype));
      }
    return text;
  };
  const std::string a = list(prefill), b = list(decode);
  if ((prefill == nullptr) != (decode == nullptr))
    return Status::error(Code::invalid, "the programs prefill and decode must be given together");
  if (a != b)
    return Status::error(Code::invalid,
                         str("prefill and decode must have equal states: prefill has", a, ", decode has", b));
  return Status::ok();
}

}  // namespace

std::int32_t micro_batches_of(const NamedProgram& named, const SessionOptions& options) noexcept {
  return named.micro_batches > 0 ? named.micro_batches : options.grad_accum;
}

Result<CheckedPrograms> check_programs(const ProgramSet& set, const SessionOptions& options) {
  if (set.snapshots() < 0)
    return Status::error(Code::invalid, str("the programs are to have room for ", set.snapshots(),
                                            " snapshots of each sequence; it must be at least 0"));
  CheckedPrograms checked{present(set), {}, set.snapshots()};
  STRATA_TRY(check_names(checked.programs));
  STRATA_TRY(check_inputs(checked.programs));
  const std::span<const NamedProgram* const> trained = checked.trained();
  for (const NamedProgram* named : trained) STRATA_TRY(check_train(*named, options));
  STRATA_TRY(check_trainees(trained, options));
  if (!trained.empty()) STRATA_TRY(cpuopt::validate(options.optimizer));
  if (const NamedProgram* const refresh = set.find(ProgramRole::refresh))
    STRATA_TRY(check_refresh(*refresh, trained.size() == 1, options));
  STRATA_TRY(check_loss_scale(trained, options));
  STRATA_TRY(check_states(set.find(ProgramRole::prefill), set.find(ProgramRole::decode)));
  for (const NamedProgram* named : checked.programs) {
    STRATA_TRY(check_ports(*named));
    STRATA_TRY(check_collectives(*named, options.ranks, options.model));
  }
  STRATA_TRY_ASSIGN(checked.parameters, unite_parameters(checked.programs));
  return checked;
}

}  // namespace strata::detail
