#pragma once

#include <span>
#include <string>

#include <strata/graph/passes.h>

// Training of matrices in a subspace of their gradient, GaLore (Zhao et al. 2024, arXiv 2403.03507): of the
// gradient G [out, in] of a matrix W the optimizer sees R, its projection on a basis that is found again from
// time to time. Here R is the gradient of a factor of an adapter (LoraTrained) that starts with zeros, and
// the other factor is the basis:
//   W + X Q, where the basis Q [r, in] is A, and the factor X [out, r] is B, with gradient R = G Q^T
//   W + P X, where the basis P [out, r] is B, and the factor X [r, in] is A, with gradient R = P^T G
// W is only read, until X is added to it and the basis changes. The order of the passes:
//   training: record, add_lora(), freeze_matrices() unless gradients are clipped, derive_backward(),
//     recompute_regions(), interleave_micro_batches(), add_gradient_outside() if gradients are clipped
//   refresh: record, train_only_matrices(), derive_backward(), recompute_regions(),
//     interleave_micro_batches(), find_bases()

namespace strata {

/// Makes the matrices of these groups not trainable. Errors: `invalid`, naming a matrix that the program
/// lacks, or if nothing is left to train.
Result<Program> freeze_matrices(Program program, std::span<const LoraGroup> groups);
/// Makes them the only parameters that are trainable. Errors: `invalid`, naming a matrix that the program
/// lacks.
Result<Program> train_only_matrices(Program program, std::span<const LoraGroup> groups);

/// To a training program in which the matrices of these groups are trainable, adds to each group the
/// parameter LoraGroup::outside [1] f32, whose gradient is sqrt(|G|^2 - |R|^2), the norm of that part of the
/// gradient of the group's rows that its basis misses (op gradient_outside). So the norm of all gradients is
/// that of a training without a basis. G becomes an activation, and the matrices are not trainable any more.
/// The parameter starts with zero, has no weight decay and is read by nothing; a learning rate of zero keeps
/// it so. With several micro-batches, G has to be their sum, so the program must cover them all. Errors:
/// `invalid`, naming a group without a basis, or a matrix or factor without a gradient.
Result<Program> add_gradient_outside(Program program, std::span<const LoraGroup> groups);

/// To a program with the gradients of the matrices of these groups, adds for each group the op find_basis,
/// right behind the instruction that completes the matrix's gradient. Its output is a result
/// (Program::results) with the name and the shape of the group's basis, f32; the share of the gradient's
/// square that it captures, [parts], is another one, with the name energy_name(). The gradients become
/// activations, and nothing is trainable any more. A basis that the program lacks becomes a parameter of it.
/// Errors: `invalid`, naming a group without a basis, a matrix without a gradient, or a gradient of another
/// parameter.
Result<Program> find_bases(Program program, std::span<const LoraGroup> groups, kernels::SvdMethod method);
/// "<basis>.energy".
std::string energy_name(const LoraGroup& group);

}  // namespace strata
