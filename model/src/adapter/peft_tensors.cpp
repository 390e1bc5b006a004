#include "adapter/peft_tensors.h"

#include <algorithm>

#include <strata/model/adapter/adapter.h>
#include <strata/model/adapter/lora.h>
#include <strata/runtime/assert.h>
#include <strata/runtime/str.h>

namespace strata::detail {
namespace {

constexpr const char* kPromptEmbeddings = "prompt_embeddings";

/// The part of `param` as a tensor of a Hugging Face file, whose rows may be in another order.
HfTensor as_hf(const PeftTensor& tensor) {
  return {tensor.name, tensor.shape(), tensor.param, 0, tensor.layout};
}

/// Calls copy(first element of the tensor, first element of the parameter's part, elements) for each row.
template <class Copy>
void each_row(const PeftTensor& tensor, const Copy& copy) {
  const auto n = static_cast<std::size_t>(tensor.columns);
  for (std::int64_t row = 0; row < tensor.rows; ++row)
    copy(static_cast<std::size_t>(row * tensor.file_columns + tensor.first_column),
         static_cast<std::size_t>(row) * n, n);
}

/// The same of each value of a tensor of experts, whose rows may be those of gates and ups in turn.
template <class Copy>
void each_value_of_experts(const PeftTensor& tensor, const Copy& copy) {
  const bool in_turn = tensor.layout == HfTensor::Layout::stack_in_turn;
  const std::int64_t ranks = tensor.columns / tensor.experts;
  for (std::int64_t row = 0; row < tensor.rows; ++row) {
    const std::int64_t at = in_turn ? row % 2 * (tensor.rows / 2) + row / 2 : row;
    for (std::int64_t rank = 0; rank < ranks; ++rank)
      for (std::int64_t e = 0; e < tensor.experts; ++e)
        copy(static_cast<std::size_t>(row * tensor.columns + rank * tensor.experts + e),
             static_cast<std::size_t>((e * tensor.rows + at) * ranks + rank));
  }
}

/// The module that has the adapter: of a parameter, the one whose it is. PEFT wraps the second of two
/// matrices of experts around the first.
std::string module_of(const LoraTarget& target, const std::vector<LoraTarget>& targets) {
  if (!target.is_parameter()) return target.module;
  const std::string module = target.module.substr(0, target.module.rfind('.'));
  const bool is_inner = target.module.ends_with(".gate_up_proj") &&
                        std::any_of(targets.begin(), targets.end(), [&](const LoraTarget& other) {
                          return other.module == module + ".down_proj";
                        });
  return is_inner ? module + ".base_layer" : module;
}

std::vector<PeftTensor> prefix_tensors(const DecoderConfig& config, std::int64_t n) {
  // A row belongs to a virtual token, and has each layer's keys and then its values.
  const std::int64_t columns = 2 * config.kv_heads * config.head_dim;
  std::vector<PeftTensor> tensors;
  for (std::int64_t layer = 0; layer < config.layers; ++layer)
    tensors.push_back({.name = kPromptEmbeddings,
                       .param = str("layers.", layer, ".prefix"),
                       .rows = n,
                       .columns = columns,
                       .file_columns = config.layers * columns,
                       .first_column = layer * columns});
  return tensors;
}

/// The parameters by their own names.
std::vector<PeftTensor> bottleneck_tensors(const DecoderConfig& config, const BottleneckSettings& settings) {
  std::vector<PeftTensor> tensors;
  const std::int64_t h = config.hidden, width = settings.width;
  for (const BottleneckModule& module : bottleneck_modules(config, settings)) {
    const auto add = [&](const char* what, std::int64_t rows, std::int64_t columns, bool is_vector) {
      const std::string name = module.name + what;
      tensors.push_back(
          {.name = name, .param = name, .rows = rows, .columns = columns, .is_vector = is_vector});
    };
    add(".down.weight", width, h, false);
    add(".down.bias", width, 1, true);
    add(".up.weight", h, width, false);
    add(".up.bias", h, 1, true);
  }
  return tensors;
}

}  // namespace

std::vector<PeftTensor> peft_tensors(const DecoderConfig& config, const std::vector<LoraTarget>& targets) {
  const std::map<std::string, std::int64_t> columns = inner_extents(config);
  const std::vector<LoraGroup> groups = lora_groups(targets);
  std::vector<PeftTensor> tensors;
  for (const LoraTarget& target : targets) {
    const auto group = std::find_if(groups.begin(), groups.end(), [&](const LoraGroup& g) {
      return g.weight == target.lora.weight && g.scale == target.lora.scale &&
             g.magnitude.empty() != target.lora.dora && g.place == target.lora.place;
    });
    STRATA_ASSERT(group != groups.end(), target.module, " is in no group");
    std::int64_t rank = 0, rows = 0, elems = 0;  // before the module
    for (const LoraPart& part : group->parts.all()) {
      if (part == target.lora.part) break;
      rank += part.rank;
      rows += part.rows;
      elems += part.rows * part.rank;
    }
    const LoraPart& part = target.lora.part;
    const std::int64_t inner = columns.at(target.lora.weight);
    const bool of_experts = target.lora.place == LoraPlace::experts;
    const std::string name = str(kPeftPrefix, module_of(target, targets));
    if (of_experts) {
      const std::int64_t e = config.experts.n;
      tensors.push_back(
          {.name = name + ".lora_A.weight", .param = group->a, .rows = e * part.rank, .columns = inner});
      tensors.push_back({.name = name + ".lora_B.weight",
                         .param = group->b,
                         .rows = part.rows,
                         .columns = part.rank * e,
                         .layout = target.rows,
                         .experts = e});
      continue;
    }
    if (target.lora.place == LoraPlace::embedding || target.lora.place == LoraPlace::head)
      tensors.push_back({.name = name + ".base_layer.weight",
                         .param = target.lora.weight,
                         .rows = config.vocab,
                         .columns = config.hidden,
                         .optional = true});
    if (target.lora.place == LoraPlace::embedding) {
      tensors.push_back(
          {name + ".lora_embedding_A", group->a, 0, part.rank, config.vocab, HfTensor::Layout::transposed});
      tensors.push_back({name + ".lora_embedding_B", group->b, 0, part.rows, part.rank, target.rows});
      continue;
    }
    tensors.push_back(
        {name + ".lora_A.weight", group->a, rank * inner, part.rank, inner, HfTensor::Layout::rows});
    tensors.push_back({name + ".lora_B.weight", group->b, elems, part.rows, part.rank, target.rows});
    if (target.lora.dora)
      tensors.push_back({.name = name + ".lora_magnitude_vector",
                         .param = group->magnitude,
                         .first = rows,
                         .rows = part.rows,
                         .columns = 1,
                         .layout = target.rows,
                         .is_vector = true});
  }
  return tensors;
}

namespace {

/// A table that PEFT stores beside rows of tokens if it is asked to, or if its vocabulary has grown.
PeftTensor table_of(const DecoderConfig& config, std::string name, std::string param) {
  return {.name = std::move(name),
          .param = std::move(param),
          .rows = config.vocab,
          .columns = config.hidden,
          .optional = true};
}

/// Rows of tokens. Where tables are stored, those of a tied head are stored a second time.
void add_token_tensors(const DecoderConfig& config, const TokenTarget& target,
                       std::vector<PeftTensor>& tensors) {
  const auto add = [&](std::string_view module, bool is_copy) {
    const std::string name = str(kPeftPrefix, module, ".token_adapter.");
    tensors.push_back(table_of(config, name + "base_layer.weight", target.rows.weight));
    tensors.push_back({.name = name + "trainable_tokens_delta",
                       .param = target.rows.rows(),
                       .rows = std::ssize(target.rows.tokens),
                       .columns = target.columns,
                       .optional = is_copy});
  };
  add(target.module, false);
  const std::string_view head = hf_head_name();
  if (target.rows.in_embedding && target.rows.in_head) add(head.substr(0, head.rfind('.')), true);
}

/// The table of an untied model whose rows are not trained, unless the adapter has it in another way.
void add_other_table(const DecoderConfig& config, const std::vector<TokenTarget>& targets,
                     std::vector<PeftTensor>& tensors) {
  if (targets.size() != 1 || config.tied_head || config.scores) return;
  for (const HfTensor& tensor : hf_tensors(config)) {
    const bool is_table = tensor.param == "tokens.weight" || tensor.param == "head.weight";
    if (is_table && std::none_of(tensors.begin(), tensors.end(),
                                 [&](const PeftTensor& other) { return other.param == tensor.param; }))
      tensors.push_back(table_of(config, str(kPeftPrefix, tensor.name), tensor.param));
  }
}

/// A tensor that is trained whole.
PeftTensor saved_tensor(const HfTensor& tensor, const std::vector<LoraTarget>& targets) {
  const std::size_t dot = tensor.name.rfind('.');
  const bool has_adapter = std::any_of(targets.begin(), targets.end(), [&](const LoraTarget& target) {
    return target.module == tensor.name.substr(0, dot);
  });
  const bool is_vector = tensor.shape.size() == 1;
  const auto extent = [&](std::size_t i) { return static_cast<std::int64_t>(tensor.shape[i]); };
  const std::int64_t columns = is_vector ? 1 : extent(1), rows = extent(0);
  const bool transposed = tensor.layout == HfTensor::Layout::transposed;
  return {.name = str(kPeftPrefix, tensor.name.substr(0, dot), has_adapter ? ".base_layer" : "",
                      tensor.name.substr(dot)),
          .param = tensor.param,
          .first = tensor.first_row * (transposed ? rows : columns),
          .rows = rows,
          .columns = columns,
          .layout = tensor.layout,
          .is_vector = is_vector};
}

}  // namespace

Result<std::vector<PeftTensor>> adapter_tensors(const DecoderConfig& config,
                                                const AdapterSettings& settings) {
  if (const auto* lora = std::get_if<LoraSettings>(&settings)) {
    STRATA_TRY_ASSIGN(const std::vector<LoraTarget> targets, lora_targets(config, *lora));
    std::vector<PeftTensor> all = peft_tensors(config, targets);
    STRATA_TRY_ASSIGN(const std::vector<HfTensor> saved, saved_tensors(config, *lora));
    for (const HfTensor& tensor : saved) all.push_back(saved_tensor(tensor, targets));
    STRATA_TRY_ASSIGN(const std::vector<TokenTarget> tokens, token_targets(config, *lora));
    for (const TokenTarget& target : tokens) add_token_tensors(config, target, all);
    add_other_table(config, tokens, all);
    return all;
  }
  if (const auto* bottleneck = std::get_if<BottleneckSettings>(&settings))
    return bottleneck_tensors(config, *bottleneck);
  const std::int64_t n = virtual_tokens(settings);
  if (std::holds_alternative<PrefixSettings>(settings)) return prefix_tensors(config, n);
  return std::vector<PeftTensor>{
      {.name = kPromptEmbeddings, .param = "prompt.weight", .rows = n, .columns = config.hidden}};
}

void scatter_peft(const PeftTensor& tensor, const DecoderConfig& config, std::span<const float> from,
                  std::span<float> param) {
  if (tensor.experts > 0)
    return each_value_of_experts(tensor,
                                 [&](std::size_t in_file, std::size_t at) { param[at] = from[in_file]; });
  if (tensor.file_columns > 0)
    return each_row(tensor, [&](std::size_t in_file, std::size_t at, std::size_t n) {
      std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(in_file), n,
                  param.begin() + static_cast<std::ptrdiff_t>(at));
    });
  scatter_hf(as_hf(tensor), config, 0, from, param.subspan(static_cast<std::size_t>(tensor.first)));
}

void gather_peft(const PeftTensor& tensor, const DecoderConfig& config, std::span<const float> param,
                 std::span<float> into) {
  if (tensor.experts > 0)
    return each_value_of_experts(tensor,
                                 [&](std::size_t in_file, std::size_t at) { into[in_file] = param[at]; });
  if (tensor.file_columns > 0)
    return each_row(tensor, [&](std::size_t in_file, std::size_t at, std::size_t n) {
      std::copy_n(param.begin() + static_cast<std::ptrdiff_t>(at), n,
                  into.begin() + static_cast<std::ptrdiff_t>(in_file));
    });
  gather_hf(as_hf(tensor), config, 0, param.subspan(static_cast<std::size_t>(tensor.first)), into);
}

}  // namespace strata::detail
