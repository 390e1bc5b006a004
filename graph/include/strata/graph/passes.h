#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <strata/graph/lora_attrs.h>
#include <strata/graph/program.h>
#include <strata/kernels/values/attention_order.h>

namespace strata {

/// Returns for every parameter the index of the first of `patterns` that matches its name, or -1. A pattern
/// is a glob: `*` is any text, `?` one character, `[a-c]` one of these (POSIX fnmatch). Errors: `invalid`,
/// listing every pattern that matches no parameter, prefixed with `key`, the name of the setting, and
/// followed by the nearest parameter names.
Result<std::vector<std::int32_t>> match_parameters(const Program& program,
                                                   std::span<const std::string> patterns,
                                                   std::string_view key);

/// Makes the parameters that match `patterns` not trainable, in all their uses. Run it before
/// derive_backward(). Errors: `invalid` if a pattern matches no parameter, or if nothing is left to train.
Result<Program> freeze_parameters(Program program, std::span<const std::string> patterns);

/// Puts `prefix` before the names of parameters, except of those in `shared`, and where other parameters
/// start from them: a second model beside another one in a run, or one with parts of its own beside what they
/// share.
Program prefix_parameters(Program program, std::string_view prefix,
                          std::span<const std::string_view> shared = {});

/// Replaces every trainable parameter by a parameter whose name has the prefix and which starts as a copy of
/// it: a second model that shares what is frozen. Those in `fresh` have no original, and start as they say.
Program copy_trainable(Program program, std::string_view prefix,
                       std::span<const std::string_view> fresh = {});
/// Makes parameters that were trainable frozen ones, which checkpoints hold nevertheless.
Program freeze_trainable(Program program);

/// Which factors of an adapter B A are trained. Of a single one the gradient is that of the matrix, projected
/// on the other one, which is called its basis: see subspace_passes.h.
enum class LoraTrained : std::uint8_t { both, a, b };

/// Where a matrix is read by what an adapter changes: by linear layers, as a table by embedding, by the
/// head, which may be the table as well, by a gate, a linear layer whose results stay f32, or by experts, of
/// which each has a matrix and an adapter of its own.
enum class LoraPlace : std::uint8_t { linear, embedding, head, gate, experts };

/// An adapter of a model's module: s B A is added to `part` of a matrix (LoRA; Hu et al. 2021, arXiv
/// 2106.09685).
struct LoraModule {
  std::string weight;  ///< the parameter
  LoraPart part;       ///< all columns of the table if that is an embedding; all rows of an expert
  float scale = 1;     ///< s
  bool dora = false;   ///< whether the adapted rows are scaled to norms that are trained, too: see add_lora()
  LoraTrained trained = LoraTrained::both;  ///< without DoRA and PiSSA
  /// How the principal part of the adapted rows is found, as which B A starts: see add_lora(); if not set, it
  /// starts as zero.
  std::optional<kernels::SvdMethod> pissa = {};
  LoraPlace place = LoraPlace::linear;  ///< elsewhere without DoRA and PiSSA
  friend bool operator==(const LoraModule&, const LoraModule&) = default;
};
/// The modules of one matrix with one scale, one start and the same trained factors. They share the GEMM with
/// A, and have two parameters; with DoRA, three; with PiSSA, four.
struct LoraGroup {
  std::string weight;
  float scale = 1;
  LoraAttrs parts;
  /// Parameter [sum of ranks, inner extent]: the A of each part, below each other. Of an embedding, [rows of
  /// the table, rank], of which a token reads a row. Of experts, [experts, rank, inner extent].
  std::string a;
  /// Parameter [elements]: the B [rows, rank] of each part, one after the other. Of a head or a
  /// gate, [rows, rank]. Of experts, [experts, rows, rank].
  std::string b;
  /// DoRA only: parameter [sum of rows], f32: the magnitudes of each part's rows; empty without DoRA.
  std::string magnitude = {};
  LoraTrained trained = LoraTrained::both;
  /// The parameter [1] of add_gradient_outside(), if there is a basis; else empty.
  std::string outside = {};
  std::optional<kernels::SvdMethod> pissa = {};
  std::string a0 = {};  ///< PiSSA only: the parameters that a and b start as; empty without it
  std::string b0 = {};
  LoraPlace place = LoraPlace::linear;
  bool has_basis() const noexcept { return trained != LoraTrained::both; }
  /// If there is a basis: the names of the parameter that is frozen, and of the one that is trained.
  const std::string& basis() const noexcept { return trained == LoraTrained::a ? b : a; }
  const std::string& factor() const noexcept { return trained == LoraTrained::a ? a : b; }
  std::int64_t ranks() const noexcept;  ///< their sum
  std::int64_t rows() const noexcept;   ///< rows of the parts together
  std::int64_t elems() const noexcept;  ///< elements of b, or of one expert's
};
/// Groups modules, with parts in the order of their rows. The names are "<matrix>.lora_A", "<matrix>.lora_B",
/// "<matrix>.lora_magnitude", "<matrix>.lora_outside", "<matrix>.lora_A0" and "<matrix>.lora_B0"; those of a
/// matrix's second group end in ".1". Of an embedding they are "<table>.lora_embedding_A" and
/// "<table>.lora_embedding_B".
std::vector<LoraGroup> group_lora_modules(std::span<const LoraModule> modules);
/// Adds s B (A x) to the result of every linear layer with one of these matrices, and to each row that an
/// expert computes with them its own expert's. With DoRA (Liu et al. 2024,
/// arXiv 2402.09353), the sum, without the layer's bias, is then multiplied row by row by m / ||W + s B A||,
/// where the norm is a constant in backward, as in section 4.3 there.
/// With PiSSA (Meng et al. 2024, arXiv 2404.02948), A and B start as the factors of the adapted rows' best
/// approximation of that rank, rounded to the program's dtype, and W stays as it is: s (B A - B0 A0) is
/// added, where A0 and B0 are what A and B started as, and are not trained. This is PiSSA's residual W - s B0
/// A0 beside s B A, without writing it: the base stays what others share, read again from its folder or
/// quantized. The adapters' parameters come after all others, so that those keep their initial values; A
/// starts as torch.nn.Linear does, B with zeros and m with the norms of the matrix's rows. With a basis both
/// factors start with zeros, have no weight decay, and the basis is not trainable. What was trainable stays
/// so. Run it before derive_backward(). Errors: `invalid`, all problems at once: a name that is not the
/// matrix of a linear layer, a rank that is 0 or above the matrix, DoRA and PiSSA of one module.
///
/// In an embedding, s B a is added to the row of each token, where a is the token's row of A; A starts with
/// zeros and B as standard normal numbers, as in PEFT. Of a head, logits are computed as a whole, also where
/// the program fused them with their loss. With `dropout`, what A reads of a linear layer or the head is
/// dropped out (kernels/adapters/dropout.h) by the keys in the input "dropout_keys" [rows, 2] i32, which the
/// program gets, with the group's number as the stream; with DoRA, the whole change has the dropped operand,
/// as in PEFT. It has the parameters of the one without.
Result<Program> add_lora(Program program, std::span<const LoraGroup> groups, float dropout = 0);
inline constexpr const char* kDropoutKeys = "dropout_keys";

/// Tokens whose rows of a matrix [vocabulary, columns] are trained while the others stay: of the token
/// embedding, of the head, or of one that is both.
struct TokenRows {
  std::string weight;                     ///< the matrix, a parameter
  std::string name;                       ///< the names of its parameters begin with this
  std::vector<std::int64_t> tokens = {};  ///< the rows
  bool in_embedding = true, in_head = false;
  std::string rows() const { return name + ".token_rows"; }
  friend bool operator==(const TokenRows&, const TokenRows&) = default;
};
/// Puts rows that are trained in the place of these of a matrix where embedding and head read it, as PEFT
/// does with trainable_token_indices. They are parameter "<name>.token_rows" [n, columns], of the matrix's
/// dtype, which starts as a copy of them. It comes after all others with two constants: that copy,
/// "<name>.token_rows0", and "<name>.token_columns" [vocabulary, n], by which tokens choose rows, so that
/// memory grows with their product. An embedding is x - c rows0 + c rows, where c [T, n] has the tokens' rows
/// of token_columns: exactly the new rows, and exactly x for other tokens. Logits are y + (h rows^T - h
/// rows0^T) token_columns^T, computed as a whole also where the program fused them with their loss. Run it
/// after add_lora() and before derive_backward(). Errors: `invalid`, all problems at once: a name that is not
/// such a matrix, a token without a row or named twice; `unsupported` for a head of another loss, or whose
/// logits have a soft cap.
Result<Program> add_token_rows(Program program, std::span<const TokenRows> rows);

/// An adapter that rows of a batch choose by its number, its index in the list that add_lora_rows() takes.
struct NamedLora {
  std::string name;
  std::vector<LoraGroup> groups;
};
/// Parameters of adapter NAME are those of its groups followed by this and NAME: "<matrix>.lora_A@NAME".
inline constexpr char kAdapterMark = '@';
/// Adds adapters to a program of rows (tokens) that each choose one of them or none, so that many share one
/// base and one batch (Punica, arXiv 2310.18547; S-LoRA, arXiv 2311.03285). The program gets the input
/// "adapters" [rows] i32, the number of each row's adapter or -1, after its others; `rows` is the number of
/// its tokens. A row's bits depend on its own adapter alone. The adapters' parameters come after all others
/// and are not trainable. For inference: there is no derivative. Run it before quantize_weights(). Errors:
/// `invalid`, all problems at once: those of add_lora(), two adapters of one name, a matrix that is not
/// multiplied with one row for each token.
Result<Program> add_lora_rows(Program program, std::span<const NamedLora> adapters, std::int64_t rows);

/// A bottleneck adapter, s Up(act(Down x)) with biases, which is added to the result y of a linear layer: in
/// series, x is y (Houlsby et al. 2019, arXiv 1902.00751); in parallel, x is the operand of a linear layer
/// before it (He et al. 2021, arXiv 2110.04366).
struct BottleneckModule {
  std::string weight;      ///< matrix of the layer
  std::string input = {};  ///< in parallel: matrix of the layer whose operand is x
  std::string name;  ///< its parameters are "<name>.down.weight", ".down.bias", ".up.weight", ".up.bias"
  std::int64_t width = 0;  ///< rows of Down
  bool gelu = false;       ///< act is GELU (tanh approximation) instead of ReLU
  float scale = 1;         ///< s
};
/// Adds these adapters. Their parameters come after all others; Down starts as torch.nn.Linear does, and Up
/// and the biases with zeros, so that the model starts as it was. Run it before derive_backward(). Errors:
/// `invalid`, all problems at once: a name that is not the matrix of a linear layer, an input behind the
/// layer, a width below 1.
Result<Program> add_bottlenecks(Program program, std::span<const BottleneckModule> modules);

/// Virtual tokens before each sequence. In a program with a KV cache, they are the first n tokens of each
/// sequence of the cache, so that the run passes n tokens of any id before it passes others.
struct VirtualTokens {
  std::int64_t n = 0;
  /// The window (AttentionAttrs) of each attention, in program order, where a sequence is n tokens longer.
  std::vector<std::int32_t> windows = {};
  /// Values between the layers of a prompt's encoder; 0: there is none.
  std::int64_t encoder_width = 0;
};
/// Prompt tuning (Lester et al. 2021, arXiv 2104.08691): the rows of parameter "prompt.weight" [n, h] are the
/// embeddings of virtual tokens at positions 0 to n - 1; the head does not see them. With an encoder, which
/// is P-tuning (Liu et al. 2021, arXiv 2103.10385), they are its results on these rows: three linear layers
/// "prompt.encoder.0" to ".2" with biases and ReLU between them. `embedding` is the table of the tokens'
/// embeddings, and `head` the region that follows the blocks. The parameters come after all others and start
/// as torch's Embedding, N(0, 1), and Linear do. Run it before derive_backward(). Errors: `invalid` for a
/// program of another form; `unsupported` for packed documents.
Result<Program> add_prompt(Program program, const VirtualTokens& tokens, std::string_view embedding,
                           std::string_view head);
/// Prefix tuning (Li & Liang 2021, arXiv 2101.00190; in every layer, as P-tuning v2, Liu et al. 2021, arXiv
/// 2110.07602): the rows of parameter "<region>.prefix" [n, 2 kv_heads d] are keys and values, not rotated,
/// before those of each sequence, whose positions start at n. The rest is as in add_prompt().
Result<Program> add_prefix(Program program, const VirtualTokens& tokens);

/// A matrix that quantize_weights() quantizes, or the matrices of experts.
struct WeightParts {
  std::string weight;  ///< the parameter [rows, columns], or [experts, rows, columns]
  /// Rows of the tensors that a matrix consists of, as in kernels::QuantizedMatrix.
  std::array<std::int64_t, kernels::QuantizedMatrix::kMaxParts> rows = {};
};
/// Stores these matrices of linear layers, and of those of experts, in `format`, and multiplies by them panel
/// by panel (kernels/linear_quantized.h, experts/expert_linear_quantized.h; QLoRA, Dettmers et al. 2023,
/// arXiv 2305.14314). It changes results, so apply it to all programs of a run. Run it after adapters are
/// added and before derive_backward(). Errors: `invalid`, all problems at once: a name that is not the matrix
/// of linear layers, or of experts, alone, one that is trained, rows that are not those of its parts.
Result<Program> quantize_weights(Program program, kernels::WeightFormat format,
                                 std::span<const WeightParts> weights);

/// Appends the derivative of output `loss` with respect to every trainable parameter. Each parameter gets a
/// value of kind grad, to which contributions (of tied uses) are added in program order. Errors: `invalid` if
/// there is no such output, if there is no trainable parameter, or if an op on the way has no derivative.
Result<Program> derive_backward(Program program, std::string_view loss);

/// Runs the GEMMs of blocks, forward and backward, on 8-bit operands (kernels/fp8.h): e4m3, and e5m2 for
/// gradients. What backward reads of x is then its quantized form, half the bytes. Applies to 16-bit programs
/// and to GEMMs all of whose dimensions are multiples of 16; the head, norms and attention stay as they are.
/// It changes results, so apply it to all programs of a run, before recompute_regions(). Idempotent.
Program use_fp8(Program program);

/// The values that backward recomputes instead of reading stored ones, in order of decreasing memory.
enum class Recompute : std::uint8_t {
  none,
  /// Values that are cheap for their bytes: norms, activations, rotations; not GEMMs and attention.
  selective,
  full,  ///< everything in a marked region; only values that cross its borders are stored
  /// The same in two parts: one value in the middle of each region is stored, too, between attention and the
  /// MLP of a transformer's block, so that never more than one part is in memory.
  halves,
};
inline constexpr std::array kRecomputeModes = {Recompute::none, Recompute::selective, Recompute::full,
                                               Recompute::halves};
std::string_view to_string(Recompute mode) noexcept;

/// In every region marked for recomputation, backward reads values recomputed by clones of the region's own
/// forward instructions, placed right before the first instruction that reads them. A clone is the same
/// instruction on the same operands, so results are bit-identical. Full: Chen et al. 2016, arXiv 1604.06174.
/// Selective: the idea of Korthikanti et al. 2022, arXiv 2205.05198, section 5, decided by operations per
/// byte; it never stores a value that `none` would not store.
Program recompute_regions(Program program, Recompute mode);

/// How many experts have their matrices in one block.
struct ExpertBlocks {
  std::int64_t experts = 0;         ///< 0: the largest power of two that has at most `bytes`
  std::int64_t bytes = 64ll << 20;  ///< one tensor of a block of experts has them
  std::int64_t align_elems = 1;     ///< a block that is not the last one is a multiple of it
};
/// Replaces each op of experts by one for each block of them, whose operands are parts of the matrices of all
/// (ValueInfo::first), so that a block can be in a chunk of its own (ParamInfo::block_elems). A row is
/// computed by its own expert's op in the same way, so results are bit-identical. Run it on all programs of a
/// run with the same blocks, after recompute_regions() and before interleave_micro_batches(). Idempotent.
Program split_experts(Program program, const ExpertBlocks& blocks);

/// Puts all micro-batches of a step into one program, interleaved layer by layer, so that a layer's
/// parameters are needed once in forward and once in backward, and a gradient is complete before it leaves
/// the device. In exchange, what forward stores for backward is held for all micro-batches at once. Each
/// micro-batch's gradient is rounded as if it ran alone, and gradients are added in f32 in micro-batch order,
/// so the bits are those of `micro_batches` separate passes. (Horizontal and vertical schedules: Lamy-Poirier
/// 2021, arXiv 2106.02679.) Run it after recompute_regions() and before offload_activations().
Program interleave_micro_batches(const Program& program, std::int32_t micro_batches);

/// Fuses an addition with the norm right after it that reads the sum, if both are in one region, so that one
/// pass over memory does both. The sum is rounded before it is normalized, so results are bit-identical. Run
/// it after recompute_regions(), which recomputes the norm without the addition where the sum is stored.
/// Idempotent.
Program fuse_add_norm(Program program);

/// Gives every GEMM a workspace (kernels::gemm_workspace_bytes), for programs that run on a GPU: GEMMs with a
/// long inner dimension are faster with one. Run it after interleave_micro_batches() and before
/// offload_activations(). Idempotent.
Program assign_gemm_workspaces(Program program);

/// Selects the GPU implementation of attention, forward and backward, and sizes its workspace: of each op the
/// first in order that supports its heads (kernels::effective_attention_backend), or else mma. Run it before
/// offload_activations(). Idempotent.
Program select_attention_backend(Program program, const kernels::AttentionOrder& order);

/// Options of offload_activations(). The rates are rates that the program can rely on throughout. They decide
/// how early a move begins; no result depends on them.
struct OffloadOptions {
  double share = 1;                  ///< fraction of the eligible bytes to move, longest unread first
  double flops_per_s = 1e14;         ///< the rate of the device's arithmetic
  double memory_bytes_per_s = 2e12;  ///< the rate of the device's memory
  double link_bytes_per_s = 2e10;    ///< between device and host, in each direction
  double store_bytes_per_s = 1e9;    ///< the rate of the slow tier, in each direction
};

/// Moves values that are not read for a long time to the host, such as what forward stores for backward, and
/// fetches them back before their next reader. A copy begins as early as there is something to copy, or room
/// for it, and ends at least one region of the model later, so that computation hides it (Rhu et al. 2016,
/// arXiv 1602.08124). Copies of one direction run one after the other; one that takes longer by the rates
/// gets more time if that makes the arena no larger, else computation waits for it. Values smaller than 1/16
/// of the largest eligible one stay, because a copy costs more than their bytes are worth. Run it after
/// recompute_regions(). Idempotent.
Program offload_activations(Program program, const OffloadOptions& options);
/// Does the same one tier farther: values that offload_activations() sent to the host and that stay there for
/// a long time move on to the slow tier, and come back to the host before they are fetched. `options.share`
/// is a fraction of those bytes.
Program store_activations(Program program, const OffloadOptions& options);

/// The offset of each activation, input and workspace in the device arena, and of each value on the host in
/// an arena of its own. Values whose live ranges overlap never share a byte.
struct MemoryPlan {
  static constexpr std::size_t kAlign = 256;
  static constexpr std::size_t kHostAlign = 4096;  ///< alignment of reads and writes of the slow tier
  static constexpr std::size_t kUnplaced = ~std::size_t{0};
  std::vector<std::size_t> offset;  ///< indexed by ValueId; kUnplaced for values in neither arena
  std::size_t arena_bytes = 0;
  std::size_t host_bytes = 0;
};
/// Plans memory greedily by size over exact live ranges (Pisarchyk & Lee 2020, arXiv 2001.03288, Alg. 3).
/// Inputs and outputs live throughout. An op that may run in place does so if its input is dead afterwards.
MemoryPlan plan_memory(const Program& program);

}  // namespace strata
