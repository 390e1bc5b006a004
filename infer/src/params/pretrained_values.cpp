#include <strata/infer/pretrained_values.h>

#include <algorithm>

#include <strata/model/adapter/adapter.h>
#include <strata/text/model_rows.h>
#include <strata/text/tokenizer.h>
#include <strata/runtime/str.h>
#include <strata/config/train_config.h>
#include <strata/config/model_choice.h>
#include <strata/infer/reward_model_values.h>

namespace strata {

Result<std::unique_ptr<PretrainedValues>> PretrainedValues::open(Io& io, const TrainConfig& config) {
  std::unique_ptr<PretrainedValues> values(new PretrainedValues);
  if (!config.model.from.empty()) {
    STRATA_TRY_ASSIGN(values->folder_, HfFolder::open(io, config.model.from));
  }
  if (config.align.reward_model) {
    STRATA_TRY_ASSIGN(values->reward_, RewardModelValues::open(io, *config.align.reward_model));
  }
  const std::string& path = config.adapter.from;
  if (path.empty()) {
    STRATA_TRY(values->open_prompt(io, config).annotate("adapter.prompt_text"));
    return values;
  }
  const DecoderConfig decoder = decoder_config(config);
  STRATA_TRY_ASSIGN(values->adapter_, PeftFolder::open(io, path, decoder));
  STRATA_TRY_ASSIGN(const AdapterSettings settings, adapter_settings(config));
  STRATA_TRY_ASSIGN(const bool same, are_same_adapter(decoder, settings, values->adapter_->settings()));
  if (same) return values;
  return Status::error(Code::invalid, str("adapter.from = ", path, ": its modules, ranks, widths or scales ",
                                          "are not those of section adapter"));
}

// The text's tokens, repeated or cut.
Status PretrainedValues::open_prompt(Io& io, const TrainConfig& config) {
  if (config.adapter.prompt_text.empty()) return {};
  STRATA_TRY_ASSIGN(const Tokenizer tokenizer, Tokenizer::load(io, tokenizer_source(config)));
  const std::vector<std::int32_t> ids = tokenizer.encode(config.adapter.prompt_text);
  STRATA_TRY(check_token_rows(tokenizer, ids, folder_->config().vocab));
  if (ids.empty()) return Status::error(Code::invalid, "the text has no token");
  for (std::int64_t i = 0; i < virtual_tokens(config); ++i)
    prompt_.push_back(ids[static_cast<std::size_t>(i) % ids.size()]);
  return {};
}

Status PretrainedValues::read_prompt(std::int64_t offset, std::span<float> values) const {
  const DecoderConfig& config = folder_->config();
  const std::int64_t h = config.hidden;
  const float scale = embedding_scale(config);
  for (std::size_t done = 0; done < values.size();) {
    const std::int64_t at = offset + static_cast<std::int64_t>(done), column = at % h;
    const std::span<float> row =
        values.subspan(done, std::min(values.size() - done, static_cast<std::size_t>(h - column)));
    const std::int64_t id = prompt_[static_cast<std::size_t>(at / h)];
    STRATA_TRY(folder_->read_part("tokens.weight", id * h + column, row));
    for (float& value : row) value *= scale;
    done += row.size();
  }
  return {};
}

Status PretrainedValues::check_base() const {
  constexpr std::int64_t kAtOnce = std::int64_t{1} << 20;
  if (!adapter_ || !folder_) return {};
  const std::map<std::string, std::int64_t> sizes = adapter_->params();
  std::vector<float> theirs, ours;
  for (const auto& [param, tensor] : adapter_->base_params())
    for (std::int64_t at = 0, n = sizes.at(param); at < n; at += kAtOnce) {
      theirs.resize(static_cast<std::size_t>(std::min(kAtOnce, n - at)));
      ours.resize(theirs.size());
      STRATA_TRY(adapter_->read_part(param, at, theirs));
      STRATA_TRY(folder_->read_part(param, at, ours));
      const auto [own, other] = std::mismatch(ours.begin(), ours.end(), theirs.begin());
      if (own != ours.end())
        return Status::error(
            Code::unsupported,
            str("adapter.from: ", tensor, " is ", *other, " at element ", at + (own - ours.begin()), ", and ",
                *own,
                " in model.from: the adapter's folder changes its base, which a run cannot "
                "keep; write both as one model first: strata export MODEL --adapter ADAPTER --out FOLDER"));
    }
  return {};
}

Result<bool> PretrainedValues::read(const StatePiece& piece, std::span<float> values) const {
  if (reward_ != nullptr && piece.name.starts_with(kRewardPrefix)) return reward_->read(piece, values);
  if (adapter_ && adapter_->has(piece.name)) {
    STRATA_TRY(adapter_->read_part(piece.name, piece.offset, values));
  } else if (!prompt_.empty() && piece.name == "prompt.weight") {
    STRATA_TRY(read_prompt(piece.offset, values));
  } else if (folder_ && folder_->has_param(piece.name)) {
    STRATA_TRY(folder_->read_part(piece.name, piece.offset, values));
  } else {
    return false;
  }
  return true;
}

Result<bool> PretrainedValues::read_quantized(const StatePiece& piece, const kernels::QuantizedMatrix& matrix,
                                              std::span<std::byte> bytes) const {
  if (!folder_ || !folder_->has_param(piece.name)) return false;
  return folder_->read_quantized(piece.name, matrix, piece.offset, bytes);
}

Status PretrainedValues::initialize(Engine& engine, std::uint64_t seed, const InitialValues& first) const {
  return engine.initialize(
      seed,
      [&](const StatePiece& piece, std::span<float> values) -> Result<bool> {
        if (!first) return read(piece, values);
        STRATA_TRY_ASSIGN(const bool is_given, first(piece, values));
        return is_given ? Result<bool>(true) : read(piece, values);
      },
      [&](const StatePiece& piece, const kernels::QuantizedMatrix& matrix, std::span<std::byte> bytes) {
        return read_quantized(piece, matrix, bytes);
      });
}

}  // namespace strata
