#include <algorithm>

#include <strata/graph/op_attrs.h>
#include <strata/graph/op_list.h>
#include <strata/graph/passes.h>
#include <strata/runtime/str.h>

#include "program_edits.h"

namespace strata {
namespace {

Init embedding_init() { return {.std = 1}; }  // as torch.nn.Embedding

/// The common part of both passes: they copy the program, and change or add instructions on the way.
class VirtualTokensPass {
 public:
  VirtualTokensPass(Program& program, const VirtualTokens& tokens)
      : program_(program), tokens_(tokens), n_(static_cast<std::int32_t>(tokens.n)) {}
  virtual ~VirtualTokensPass() = default;

  Status run() {
    STRATA_TRY(find_form());
    std::vector<Instr> code;
    code.swap(program_.code);
    for (Instr& instr : code) {
      now_.apply(instr.in);
      if (instr.op == Op::rope_table && !is_cached_) instr.attrs.as<RopeTableAttrs>().positions += n_;
      before(instr);
      STRATA_TRY(put(std::move(instr)));
      after(Instr(program_.code.back()));
    }
    now_.apply(program_.outputs);
    return verify(program_);
  }

 protected:
  virtual void before(Instr& instr) = 0;
  virtual void after(const Instr& done) = 0;

  /// Lengthens the sequences of an attention without a KV cache.
  void lengthen(Instr& attention) {
    auto& attrs = attention.attrs.as<AttentionAttrs>();
    attrs.seq += n_;
    attrs.window = tokens_.windows[n_attentions_++];
  }
  VirtualRowsAttrs rows() const { return {.n = n_, .seq = seq_}; }
  void replace(ValueId old, ValueId by) { now_.replace(old, by); }

  Program& program_;
  const VirtualTokens& tokens_;
  const std::int32_t n_;
  bool is_cached_ = false;
  std::int32_t seq_ = 0;
  ValueId positions_ = kNoValue;  // the input of a program with a KV cache

 private:
  Status find_form() {
    is_cached_ = has_op(program_, Op::cached_attention);
    std::size_t n_attentions = 0;
    for (const Instr& instr : program_.code) {
      if (instr.op != Op::attention) continue;
      ++n_attentions;
      seq_ = instr.attrs.as<AttentionAttrs>().seq;
      if (instr.in[1] != kNoValue)
        return Status::error(Code::unsupported,
                             "virtual tokens are not implemented for packed documents: they would have to be "
                             "before each document of a row");
    }
    positions_ = program_.find("positions");
    if (n_ < 1) return Status::error(Code::invalid, str(n_, " virtual tokens; there must be at least 1"));
    if (is_cached_ ? positions_ == kNoValue : n_attentions == 0)
      return Status::error(Code::invalid, is_cached_ ? "the program has no input positions"
                                                     : "the program has no attention: it is no decoder");
    if (!is_cached_ && tokens_.windows.size() != n_attentions)
      return Status::error(Code::invalid, str(tokens_.windows.size(), " windows for ", n_attentions,
                                              " attentions; each must have one"));
    return {};
  }
  // Appends an instruction whose outputs may have other shapes than before.
  Status put(Instr instr) {
    STRATA_TRY_ASSIGN(const auto specs, infer_outputs(program_, instr));
    for (std::size_t i = 0; i < specs.size(); ++i)
      program_.values[static_cast<std::size_t>(instr.out[i])].shape = specs[i].shape;
    program_.code.push_back(std::move(instr));
    return {};
  }

  detail::Replacements now_;
  std::size_t n_attentions_ = 0;  // so far
};

class PromptPass final : public VirtualTokensPass {
 public:
  PromptPass(Program& program, const VirtualTokens& tokens, ValueId table, std::int32_t head)
      : VirtualTokensPass(program, tokens), head_(head) {
    const auto embeds = std::find_if(program.code.begin(), program.code.end(), [&](const Instr& instr) {
      return instr.op == Op::embedding && instr.in[1] == table;
    });
    if (embeds == program.code.end()) return;
    embedded_ = embeds->out[0];
    const auto next = embeds + 1;
    if (next != program.code.end() && next->op == Op::scale && next->in[0] == embedded_)
      embedded_ = next->out[0];
    const DType dtype = program.value(table).dtype;
    const std::int64_t h = program.value(table).shape.dim(1);
    prompt_ = detail::add_param(program, "prompt.weight", {tokens.n, h}, dtype, embedding_init());
    if (tokens.encoder_width == 0) return;
    const std::int64_t widths[] = {h, tokens.encoder_width, tokens.encoder_width, h};
    for (std::size_t i = 0; i < 3; ++i) {
      const Init init = detail::linear_init(widths[i]);
      const std::string name = str("prompt.encoder.", i);
      encoder_.push_back(
          detail::add_param(program, name + ".weight", {widths[i + 1], widths[i]}, dtype, init));
      encoder_.push_back(detail::add_param(program, name + ".bias", {widths[i + 1]}, dtype, init, false));
    }
  }
  bool is_decoder() const noexcept { return embedded_ != kNoValue; }

 protected:
  void before(Instr& instr) override {
    if (is_cached_) return;
    if (instr.op == Op::attention) lengthen(instr);
    if (instr.op == Op::positions) {
      auto& attrs = instr.attrs.as<PositionsAttrs>();
      attrs.rows = attrs.rows / attrs.seq * (attrs.seq + n_);
      attrs.seq += n_;
    }
    if (instr.region != head_) return;
    for (ValueId& id : instr.in)
      if (std::find(long_.begin(), long_.end(), id) != long_.end()) {
        const ValueId whole = id;
        id = detail::append(program_, instr, Op::drop_rows, {whole}, rows());
        replace(whole, id);
      }
  }
  void after(const Instr& done) override {
    // Everything that depends on the spliced rows has as many.
    const bool is_long = std::any_of(done.in.begin(), done.in.end(), [&](ValueId id) {
      return std::find(long_.begin(), long_.end(), id) != long_.end();
    });
    if (is_long) long_.push_back(done.out[0]);
    if (done.out[0] != embedded_) return;
    const ValueId prompt = encode(done);
    const ValueId whole =
        is_cached_
            ? detail::append(program_, done, Op::replace_rows, {embedded_, positions_, prompt}, NoAttrs{})
            : detail::append(program_, done, Op::splice_rows, {embedded_, prompt}, rows());
    replace(embedded_, whole);
    if (!is_cached_) long_.push_back(whole);
  }

 private:
  ValueId encode(const Instr& done) {
    ValueId x = prompt_;
    for (std::size_t i = 0; i < encoder_.size(); i += 2) {
      if (i > 0) x = detail::append(program_, done, Op::relu, {x}, NoAttrs{});
      x = detail::append(program_, done, Op::linear, {x, encoder_[i], encoder_[i + 1]}, LinearAttrs{});
    }
    return x;
  }

  const std::int32_t head_;
  ValueId embedded_ = kNoValue, prompt_ = kNoValue;
  std::vector<ValueId> encoder_;  // weight and bias of each layer
  std::vector<ValueId> long_;     // values with virtual rows
};

class PrefixPass final : public VirtualTokensPass {
 public:
  PrefixPass(Program& program, const VirtualTokens& tokens) : VirtualTokensPass(program, tokens) {
    for (const Instr& instr : program.code) {
      if (instr.op != Op::attention && instr.op != Op::cached_attention) continue;
      const auto& attrs = instr.attrs.as<AttentionAttrs>();
      const std::int64_t d = program.value(instr.in[0]).shape.dim(1) / (attrs.heads + 2 * attrs.kv_heads);
      const std::string name = str(program.regions[static_cast<std::size_t>(instr.region)].name, ".prefix");
      prefixes_.push_back(detail::add_param(program, name, {tokens.n, 2 * attrs.kv_heads * d},
                                            program.value(instr.in[0]).dtype, embedding_init()));
    }
  }

 protected:
  void before(Instr& instr) override {
    if (instr.op == Op::positions) instr.attrs.as<PositionsAttrs>().first = n_;
    if (instr.op != Op::attention && instr.op != Op::cached_attention) return;
    const ValueId prefix = prefixes_[next_++];
    if (instr.op == Op::cached_attention) {
      instr.in[0] =
          detail::append(program_, instr, Op::replace_rows, {instr.in[0], positions_, prefix}, NoAttrs{});
      return;
    }
    // The queries of the virtual rows are zero, and what they give is dropped.
    instr.in[0] = detail::append(program_, instr, Op::splice_rows, {instr.in[0], prefix}, rows());
    lengthen(instr);
  }
  void after(const Instr& done) override {
    if (done.op == Op::attention)
      replace(done.out[0], detail::append(program_, done, Op::drop_rows, {done.out[0]}, rows()));
  }

 private:
  std::vector<ValueId> prefixes_;  // the prefix of each attention, in program order
  std::size_t next_ = 0;
};

}  // namespace

Result<Program> add_prompt(Program program, const VirtualTokens& tokens, std::string_view embedding,
                           std::string_view head) {
  const ParamInfo* const table = detail::find_param(program, embedding);
  const auto region = std::find_if(program.regions.begin(), program.regions.end(),
                                   [&](const Region& r) { return r.name == head; });
  if (table == nullptr || region == program.regions.end())
    return Status::error(Code::invalid, str("the program has no ", table == nullptr ? embedding : head));
  PromptPass pass(program, tokens, table->value, static_cast<std::int32_t>(region - program.regions.begin()));
  if (!pass.is_decoder())
    return Status::error(Code::invalid, str(embedding, " is not the table of an embedding"));
  STRATA_TRY(pass.run());
  return program;
}

Result<Program> add_prefix(Program program, const VirtualTokens& tokens) {
  STRATA_TRY(PrefixPass(program, tokens).run());
  return program;
}

}  // namespace strata
